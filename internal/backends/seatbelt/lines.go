package seatbelt

import (
	"cmp"
	"slices"

	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A line is what a profile can enforce of a line of a plan: an access to a host path, in the
// kernel's spelling.
type line struct {
	path   string
	access policy.Access
	// whole: the line also applies to everything below the path.
	whole  bool
	origin policy.Origin
}

// nowhere is the line for a path that no other line matches.
var nowhere = line{path: "/", access: policy.Hidden, whole: true}

// linesOf returns the lines of a plan, shallowest first. Of one depth, lines that give more
// access come first.
func linesOf(p *plan.Plan) []line {
	byPath := map[string]line{}
	for _, e := range slices.Concat(p.Paths, p.AbsentLines()) {
		l, ok := lineOf(e)
		if old, twice := byPath[l.path]; ok && (!twice || l.access < old.access) {
			byPath[l.path] = l
		}
	}
	lines := make([]line, 0, len(byPath))
	for _, l := range byPath {
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(depth(a.path), depth(b.path)), cmp.Compare(b.access, a.access), cmp.Compare(a.path, b.path))
	})
	return lines
}

func depth(p string) int {
	if p == "/" {
		return -1
	}
	return pathx.Depth(p)
}

// lineOf returns the line for a line of a plan. What would need a mount is closed, and gapsOf
// lists it.
func lineOf(e plan.Path) (line, bool) {
	l := line{path: canonical(e.Path), access: e.Access, whole: e.Kind == hostfs.Dir || e.Kind == hostfs.Missing, origin: e.Origin}
	switch e.Content {
	case plan.Proc:
		return line{}, false // macOS has none
	case plan.Devices:
		l.access = policy.Hidden // the allowed devices have their own rules
	case plan.Text:
		l.access = min(l.access, policy.Read) // the host's own file
	case plan.Link:
		if slices.Contains(aliases, e.Path) {
			return line{}, false // every profile lets them be followed
		}
		l.access, l.whole = policy.Read, false
	case plan.Empty:
		l.access = policy.Hidden
	case plan.Host:
		if e.Source != "" && canonical(e.Source) != l.path && e.Kind != hostfs.Missing {
			l.access = policy.Hidden
		}
	}
	if l.access == policy.Hidden {
		l.whole = true
	}
	return l, true
}

// around returns the line that would decide about a path if it had no line of its own.
func around(lines []line, p string) line {
	best := nowhere
	for _, l := range lines {
		if l.whole && l.path != p && len(l.path) >= len(best.path) && pathx.Within(l.path, p) {
			best = l
		}
	}
	return best
}

// covers returns the line that decides about a path.
func covers(lines []line, p string) line {
	for _, l := range lines {
		if l.path == p {
			return l
		}
	}
	return around(lines, p)
}

// atHome returns the plan with the workspace at its host path, and with rules that protect git
// directories.
func atHome(p *plan.Plan) *plan.Plan {
	own := *p
	own.Globs = slices.Concat(p.Globs, gitGlobs(p))
	return program.WithoutRemap(&own)
}

// gitNames are files in git directories that git executes, or that redirect it to other files.
var gitNames = []string{
	"**/.git/hooks", "**/.git/config", "**/.git/config.worktree", "**/.git/commondir", "**/.git/worktrees/*/commondir",
	"**/.git/worktrees/*/config.worktree", "**/.git/modules/**/hooks", "**/.git/modules/**/config", "**/.git/modules/**/config.worktree",
}

// gitGlobs protects git directories, if the policy has rules about names. On Linux a broker
// reads what git writes there and allows harmless settings; a profile can only deny all
// changes.
func gitGlobs(p *plan.Plan) []plan.Glob {
	if !p.JudgesNames() {
		return nil
	}
	var folders []string
	for _, e := range p.Exempt {
		folders = append(folders, e.Folder)
	}
	globs := make([]plan.Glob, len(gitNames))
	for i, name := range gitNames {
		globs[i] = plan.Glob{Pattern: name, Access: policy.Read, ExceptUnder: folders, Optional: true, Reason: "git runs what it says",
			Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: git directories"}}
	}
	return globs
}
