package resolve

import (
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// mirror repeats the lines below the source of each bind at its target. A rule is about a path
// of the host. Without the copies, files that it hides or protects would be accessible at the
// second path,
//
//	binds: ["~:/home/dev"]         # /home/dev/.ssh
//
// and so would cloche's own files. If a rule has a line for the second path itself, that line
// stays, unless the copy is locked.
func mirror(lines map[string]*candidate) {
	var copies []*candidate
	sorted := sortedPaths(lines)
	for _, at := range sorted {
		bind := lines[at]
		if bind.Content != plan.Host || bind.Create || bind.Source == at {
			continue
		}
		for _, p := range sorted {
			if p != bind.Source && pathx.Within(bind.Source, p) && ofHost(&lines[p].Path) {
				copies = append(copies, mirrored(*lines[p], &bind.Path))
			}
		}
	}
	for _, c := range copies {
		if old, ok := lines[c.Path.Path]; !ok || c.locked && !old.locked {
			lines[c.Path.Path] = c
		}
	}
}

// ofHost reports whether a line is about the host's file of the same path.
func ofHost(e *plan.Path) bool {
	return e.Content != plan.Host || e.Source == e.Path
}

// mirrored returns the copy of a line at the path where a bind shows it, with no more access
// than the bind gives.
func mirrored(c candidate, bind *plan.Path) *candidate {
	c.Path.Path = pathx.Rebase(bind.Source, bind.Path, c.Path.Path)
	c.Access = min(c.Access, bind.Access)
	if c.Content == plan.Proc || c.Content == plan.Devices {
		// The host's own /proc and /dev are not shown; the command has its own.
		c.Content, c.Access, c.Kind = plan.Empty, policy.Hidden, hostfs.Dir
	}
	return &c
}
