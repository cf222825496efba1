package plan

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// AbsentLines returns a line for each rule about a path that does not exist. A rule that
// would make such a path writable counts only in a writable directory: elsewhere nobody
// can create the path.
func (p *Plan) AbsentLines() []Path {
	lines := make([]Path, 0, len(p.Absent))
	for _, a := range p.Absent {
		if a.Rule.Access != policy.Write || p.Access(a.Path) == policy.Write {
			lines = append(lines, a.Line())
		}
	}
	return lines
}

// Guarded returns the writable directories and files of the host. Mounts and Landlock
// give a whole tree or none of it; in these paths, whoever enforces the plan has to
// judge every change by its name: for patterns, for paths that do not exist yet, and
// for what git outside would run. A private directory around one of them is guarded
// with it, because its rights would hold for what is in it.
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

// writableHost reports whether the line lets a directory or a file of the host be
// changed. Devices, pipes and sockets are used, not changed.
func (e *Path) writableHost() bool {
	return e.Access == policy.Write && e.Content == Host && (e.Kind == hostfs.Dir || e.Kind == hostfs.File)
}

// JudgesNames reports whether the plan has rules that hold only if the name of
// every file is judged when it is used, or asks about what others refuse. Wherever
// the host's files can be changed, it has: see Guarded.
func (p *Plan) JudgesNames() bool {
	return p.Asks || len(p.Globs) > 0 || slices.ContainsFunc(p.Paths, func(e Path) bool { return e.writableHost() })
}

// holdsWritable reports whether something of the host below a path can be changed.
func (p *Plan) holdsWritable(path string) bool {
	for i := range p.Paths {
		if e := &p.Paths[i]; e.writableHost() && e.Path != path && pathx.Within(path, e.Path) {
			return true
		}
	}
	return false
}

// HidesByPattern reports whether a pattern hides something: then each file has
// to be judged before it is read.
func (p *Plan) HidesByPattern() bool {
	return slices.ContainsFunc(p.Globs, func(g Glob) bool { return g.Access == policy.Hidden })
}

// JudgesReads reports whether each file has to be judged before it is read: a
// pattern hides something, or a person may be asked about it.
func (p *Plan) JudgesReads() bool { return p.Asks || p.HidesByPattern() }
