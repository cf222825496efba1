package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// sayDenied tells what was refused: in a few lines, or as the text for an agent.
func (a *app) sayDenied(r *cloche.Result, forAgent bool) {
	if r == nil {
		return
	}
	lines := r.DeniedLines("--report FILE or cloche log")
	if forAgent {
		lines = strings.Split(strings.TrimSuffix(r.DeniedText(), "\n"), "\n")
	}
	for _, line := range lines {
		if line != "" {
			a.words.warn(line)
		}
	}
	if len(lines) > 0 && a.where != nil && changesOutside(r, a.where.workspace) {
		a.words.warn(a.where.whereabouts())
	}
}

// changesOutside reports whether a change of a file outside of the workspace was denied:
// then it matters which folder that is.
func changesOutside(r *cloche.Result, workspace string) bool {
	root, err := filepath.EvalSymlinks(workspace)
	return err == nil && slices.ContainsFunc(r.Denied, func(d cloche.Denial) bool {
		rel, err := filepath.Rel(root, d.Path)
		outside := err == nil && !filepath.IsLocal(rel)
		return outside && d.Path != "" && d.Op != plan.OpRead && d.Op != plan.OpExec && d.Access == policy.Read && d.Rule == "paths.read"
	})
}

// sayNetwork tells what came up about the network while the command ran.
func (a *app) sayNetwork(r *cloche.Result) {
	if r == nil {
		return
	}
	for _, n := range r.Notices {
		if n.Kind == plan.NoticeNetwork {
			a.words.warn(noticeLine(n))
		}
	}
}
