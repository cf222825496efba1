package plan

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// AbsentLines returns a line for each rule about a path that does not exist. A rule that makes
// such a path writable counts only in a writable directory: elsewhere the command cannot
// create the path.
func (p *Plan) AbsentLines() []Path {
	lines := make([]Path, 0, len(p.Absent))
	for _, a := range p.Absent {
		if a.Rule.Access != policy.Write || p.Access(a.Path) == policy.Write {
			lines = append(lines, a.Line())
		}
	}
	return lines
}

// Guarded returns the paths inside of the host's writable directories and files. Mounts and
// Landlock can only allow or deny a whole tree. In these paths, every change has to be checked
// by its name instead: for patterns, for paths that do not exist yet, and for files that git
// outside would run. A private directory that contains one of them is guarded as well, because
// the rights of the outer directory apply to everything below it.
func (p *Plan) Guarded() []string {
	var roots []string
	for i := range p.Paths {
		e := &p.Paths[i]
		if e.writableHost() || e.Access == policy.Write && e.Content == Empty && p.holdsWritable(e.Path) {
			roots = append(roots, e.Path)
		}
	}
	return roots
}

// writableHost reports whether the line makes a directory or a regular file of the host
// writable. Writing to devices, pipes and sockets does not change them, so they do not count.
func (e *Path) writableHost() bool {
	return e.Access == policy.Write && e.Content == Host && (e.Kind == hostfs.Dir || e.Kind == hostfs.File)
}

// JudgesNames reports whether the name of every file has to be checked when it is used: the
// plan has patterns, it asks a person about denials, or some of the host's files are writable
// (see Guarded).
func (p *Plan) JudgesNames() bool {
	return p.Asks || len(p.Globs) > 0 || slices.ContainsFunc(p.Paths, func(e Path) bool { return e.writableHost() })
}

// holdsWritable reports whether a file or directory of the host below the path is writable.
func (p *Plan) holdsWritable(path string) bool {
	for i := range p.Paths {
		if e := &p.Paths[i]; e.writableHost() && e.Path != path && pathx.Within(path, e.Path) {
			return true
		}
	}
	return false
}

// HidesByPattern reports whether a pattern hides files.
func (p *Plan) HidesByPattern() bool {
	return slices.ContainsFunc(p.Globs, func(g Glob) bool { return g.Access == policy.Hidden })
}

// JudgesReads reports whether every open for reading has to be checked: a pattern hides files,
// or a person may be asked.
func (p *Plan) JudgesReads() bool { return p.Asks || p.HidesByPattern() }
