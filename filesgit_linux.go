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
	if v.Action == gitguard.Allow && line.Path != line.Source && pathx.Within(line.Source, real) {
		v = s.judgeShownName(real, line)
	}
	if v.Action == gitguard.Allow {
		return nil
	}
	return &plan.Verdict{Access: policy.Read, Rule: v.Rule, Reason: v.Reason, At: real, Origin: policy.Origin{Source: "git directories are guarded"}}
}

// judgeShownName judges a file by the name that a bind gives it. Only a name in a
// writable folder of the host matters: elsewhere git outside does not find it.
func (s *Session) judgeShownName(real string, line plan.Path) gitguard.Verdict {
	around := s.Explain().Lookup(path.Dir(line.Path))
	if around.Content != plan.Host || around.Access != policy.Write {
		return gitguard.Verdict{Action: gitguard.Allow}
	}
	name := pathx.Rebase(around.Path, around.Source, pathx.Rebase(line.Source, line.Path, real))
	return gitguard.JudgePath(name, around.Source)
}
