package cloche

import (
	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// gitRefusal says why a file may not be written although the plan lets it be:
// git outside would run something because of it. Commands are held to the same
// by the broker, which may also write a harmless setting itself; here nobody sees
// what is going to be written, so that is refused too.
func (s *Session) gitRefusal(real string, line plan.Path) *plan.Verdict {
	if s.engine.Policy().Disabled {
		return nil
	}
	v := gitguard.JudgeLine(s.Explain(), line, real)
	if v.Action == gitguard.Allow {
		return nil
	}
	return &plan.Verdict{Access: policy.Read, Rule: v.Rule, Reason: v.Reason, At: real, Origin: policy.Origin{Source: "git directories are guarded"}}
}
