package gitguard

import (
	"path"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// JudgeLine is JudgePath for a real path that a line of a plan shows. A file that a bind
// gives another name is judged by both: git outside finds the name only if it lies in a
// writable folder of the host.
func JudgeLine(p *plan.Plan, line plan.Path, real string) Verdict {
	if line.Content != plan.Host {
		return allowed
	}
	v := JudgePath(real, line.Source)
	if v.Action != Allow || line.Path == line.Source || !pathx.Within(line.Source, real) {
		return v
	}
	around := p.Lookup(path.Dir(line.Path))
	if around.Content != plan.Host || around.Access != policy.Write {
		return allowed
	}
	name := pathx.Rebase(around.Path, around.Source, pathx.Rebase(line.Source, line.Path, real))
	return JudgePath(name, around.Source)
}
