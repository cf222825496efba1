package gitguard

import (
	"path"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
)

// JudgeLine is JudgePath for a real path that a line of a plan shows. A file that a bind
// shows under another name is judged by both names, as the broker judges it: the broker sees
// the name inside, and cannot tell that git outside finds something else there.
func JudgeLine(p *plan.Plan, line plan.Path, real string) Verdict {
	if line.Content != plan.Host {
		return allowed
	}
	v := JudgePath(real, line.Source)
	if v.Action != Allow || line.Path == line.Source || !pathx.Within(line.Source, real) {
		return v
	}
	name := pathx.Rebase(line.Source, line.Path, real)
	around := p.Lookup(path.Dir(line.Path))
	if around.Source == "" { // a folder that the host does not have: its names count
		return JudgePath(name, around.Path)
	}
	return JudgePath(pathx.Rebase(around.Path, around.Source, name), around.Source)
}
