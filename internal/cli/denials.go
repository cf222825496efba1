package cli

import (
	"fmt"
	"slices"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/plan"
)

// maxDenialLines is how many refusals are told in full: more would bury what the
// command itself had to say. All of them are in the report and in the log.
const maxDenialLines = 5

// sayDenied tells what was refused, most frequent first. Programs often try to
// write where nothing can be written and do well without: such refusals are
// told only if the command failed.
func (a *app) sayDenied(r *cloche.Result) {
	if r == nil {
		return
	}
	list := slices.Clone(r.Denied)
	if r.Success() {
		list = slices.DeleteFunc(list, func(d plan.Denial) bool { return d.Rule == "paths.read" })
	}
	slices.SortStableFunc(list, func(x, y plan.Denial) int { return y.Count - x.Count })
	for i := range list {
		if i == maxDenialLines {
			a.words.warn(fmt.Sprintf("and %d more refusals; --report FILE lists them all", len(list)-i))
			return
		}
		a.words.warn(list[i].String())
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
