package cloche

import (
	"path"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// gitRefusal says why a file may not be written although the plan lets it be:
// git outside would run something because of it. Commands are held to the same
// by the broker, which may also write a harmless setting itself; here nobody sees
// what is going to be written, so that is refused too.
func (s *Session) gitRefusal(real string, line plan.Path) *plan.Verdict {
	if s.policy.Disabled || line.Content != plan.Host {
		return nil
	}
	v := gitguard.JudgePath(real, line.Source)
	if around := s.Explain().Lookup(path.Dir(line.Path)); v.Action == gitguard.Allow && line.Path != line.Source && pathx.Within(line.Source, real) && around.Content == plan.Host && around.Access == policy.Write {
		// The command sees the file under another name, and in another folder.
		name := pathx.Rebase(around.Path, around.Source, pathx.Rebase(line.Source, line.Path, real))
		v = gitguard.JudgePath(name, around.Source)
	}
	if v.Action == gitguard.Allow {
		return nil
	}
	return &plan.Verdict{Access: policy.Read, Rule: v.Rule, Reason: v.Reason, At: real, Origin: policy.Origin{Source: "git directories are guarded"}}
}
