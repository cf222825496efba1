package cloche

import (
	"fmt"
	"os"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The methods below are for programs that read and write files themselves, on behalf of an
// agent, and want to obey the same policy. They take host paths and need no backend.

// IsWritable reports whether a command of the session could write the path, or create it. It
// is true for every path if the policy is disabled.
func (s *Session) IsWritable(path string) bool {
	return s.may(policy.Write, path)
}

// IsReadable reports whether a command of the session could read the path.
func (s *Session) IsReadable(path string) bool {
	return s.may(policy.Read, path)
}

// may decides about a path as it is, without expanding the forms of a policy.
func (s *Session) may(need policy.Access, path string) bool {
	if _, err := s.plan(); err != nil {
		return false
	}
	real, err := safeopen.RealPath(s.abs(path))
	if err != nil {
		return false
	}
	v, line := s.judge(real)
	return v.Access >= need && (need != policy.Write || s.gitRefusal(real, line) == nil)
}

// Confine resolves a path, relative to the workspace or absolute, and returns the real path if
// it is in the workspace, or an *EscapeError. The path may become a link to another file right
// afterwards: to open the file safely, use OpenFile.
func (s *Session) Confine(path string) (string, error) {
	p, err := s.plan()
	if err != nil {
		return "", err
	}
	return safeopen.Confine(p.Workspace, path)
}

// OpenFile opens a file as os.OpenFile does, if the policy lets a command do so. It follows
// symbolic links and checks the file that they lead to. Replacing a folder by another one
// meanwhile has no effect. Where the session has a review, OpenFile opens nothing that commands may write: the file
// of the host is not the one that they see. Hooks and settings in git directories cannot be written, because
// git outside would run them.
func (s *Session) OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	p, err := s.plan()
	if err != nil {
		return nil, err
	}
	return safeopen.Open(s.abs(path), flag, perm, func(resolved string, write bool) error {
		op := plan.OpRead
		if write {
			op = plan.OpWrite
		}
		if d := s.decide(op, resolved); !d.Allowed {
			return &AccessError{d}
		}
		if _, line := s.judge(resolved); p.Reviews(&line) {
			return fmt.Errorf("%s: what commands write there is in the review %s, and not on the host: read and write it with a command", resolved, p.Review.Name)
		}
		return nil
	})
}

// An AccessError says that the policy does not allow an operation on a file.
type AccessError struct{ plan.Decision }

// Error names the file, the rule that denies it and the option that would allow it.
func (e *AccessError) Error() string {
	s := fmt.Sprintf("%s: %s is denied: %s", e.Path, e.Op, denials.RuleFrom(&e.Decision))
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	if len(e.Fix) > 0 {
		s += "; allow it with " + runoption.Text(e.Fix...)
	}
	if note := denials.Note(&e.Decision); note != "" {
		s += "; " + note
	}
	return s
}

// Is makes errors.Is(err, fs.ErrPermission) true.
func (e *AccessError) Is(target error) bool { return target == os.ErrPermission }

// gitRefusal returns why a file must not be written although the plan allows it: git outside
// would run something because of it. The broker applies the same check to commands, and may
// write a harmless setting itself. Here the content is not known yet, so harmless settings are
// denied too.
func (s *Session) gitRefusal(real string, line plan.Path) *plan.Decision {
	if s.engine.Policy().Disabled {
		return nil
	}
	v := gitguard.JudgeLine(s.current(), line, real)
	if v.Action == gitguard.Allow {
		return nil
	}
	reason := v.Reason
	if v.Fix != "" {
		reason += "; " + v.Fix // the same text as in the denial of a command
	}
	return &plan.Decision{Access: policy.Read, Rule: v.Rule, Reason: reason, At: real, Origin: policy.Origin{Source: "git directories are guarded"}}
}
