package cli

import (
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/plan"
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
