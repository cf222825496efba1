package program

import (
	"slices"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
)

// Unmap returns a path inside as it would be without the remap of the workspace.
func Unmap(p *plan.Plan, inside string) string {
	if p.Inside != "" && p.Inside != p.Workspace && pathx.Within(p.Inside, inside) {
		return pathx.Rebase(p.Inside, p.Workspace, inside)
	}
	return inside
}

// WithoutRemap returns the plan with the workspace's lines at their host paths, for a backend
// without mounts. Inside is not changed.
func WithoutRemap(p *plan.Plan) *plan.Plan {
	if p.Inside == p.Workspace || p.Inside == "" {
		return p
	}
	own := *p
	own.Paths = nil
	for _, e := range p.Paths {
		if e.Path == p.Workspace { // hidden there, because it is shown elsewhere
			continue
		}
		e.Path = Unmap(p, e.Path)
		own.Paths = append(own.Paths, e)
	}
	own.Absent = slices.Clone(p.Absent)
	for i := range own.Absent {
		own.Absent[i].Path = Unmap(p, own.Absent[i].Path)
	}
	own.Globs = slices.Clone(p.Globs)
	for i := range own.Globs {
		g := &own.Globs[i]
		g.Pattern = Unmap(p, g.Pattern)
		g.ExceptUnder = slices.Clone(g.ExceptUnder)
		for j := range g.ExceptUnder {
			g.ExceptUnder[j] = Unmap(p, g.ExceptUnder[j])
		}
	}
	if p.Command != nil {
		cmd := *p.Command
		cmd.Path, cmd.Dir = Unmap(p, cmd.Path), Unmap(p, cmd.Dir)
		own.Command = &cmd
	}
	return &own
}
