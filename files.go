package cloche

import (
	"fmt"
	"os"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The methods below are for programs that read and write files themselves, on
// behalf of an agent, and want to be held to the same policy. Their paths are
// the host's. They need no backend.

// IsWritable reports whether a command of the session could write the path,
// or create it. It is true for every path where the policy is disabled.
func (s *Session) IsWritable(path string) bool {
	return s.may(policy.Write, path)
}

// IsReadable reports whether a command of the session could read the path.
func (s *Session) IsReadable(path string) bool {
	return s.may(policy.Read, path)
}

// may judges a path as it is, without the forms of a policy.
func (s *Session) may(need policy.Access, path string) bool {
	if _, err := s.plan(); err != nil {
		return false
	}
	real, err := realPath(s.abs(path))
	if err != nil {
		return false
	}
	v, line := s.judge(real)
	return v.Access >= need && (need != policy.Write || s.gitRefusal(real, line) == nil)
}

// Confine resolves a path, relative to the workspace or absolute, and returns
// the real path if it lies within the workspace, an *EscapeError if not. What
// the name stands for may change right after: to open the file use OpenFile.
func (s *Session) Confine(path string) (string, error) {
	p, err := s.plan()
	if err != nil {
		return "", err
	}
	return safeopen.Confine(p.Workspace, path)
}

// Confine resolves candidate, relative to root or absolute, and returns the
// real path if it lies within root, an *EscapeError if not.
func Confine(root, candidate string) (string, error) { return safeopen.Confine(root, candidate) }

// OpenFile opens a file the way os.OpenFile does, if the policy lets a command
// do so. Symbolic links are followed and judged by where they lead, and nobody
// can swap a folder for another in between. Hooks and settings of git
// directories cannot be written: git outside would run them.
func (s *Session) OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	if _, err := s.plan(); err != nil {
		return nil, err
	}
	return safeopen.Open(s.abs(path), flag, perm, func(resolved string, write bool) error {
		need := policy.Read
		if write {
			need = policy.Write
		}
		v, line := s.judge(resolved)
		if v.Access < need {
			_, by := decidedBy(&v, line)
			return &AccessError{Path: resolved, Access: need, Rule: by}
		}
		if refusal := s.gitRefusal(resolved, line); write && refusal != nil {
			return &AccessError{Path: resolved, Access: need, git: refusal.Rule,
				Rule: plan.Path{Path: resolved, Access: policy.Read, Protect: true, Reason: refusal.Reason, Origin: refusal.Origin}}
		}
		return nil
	})
}

// An AccessError says that the policy does not allow a path to be used so.
type AccessError struct {
	Path   string
	Access policy.Access
	// Rule is the line of the plan that decided.
	Rule plan.Path

	git string // the rule about git directories that refused
}

// Error names the path, the rule that refused and the grant that would allow it.
func (e *AccessError) Error() string {
	switch {
	case e.git != "":
		return fmt.Sprintf("%s: %s is refused by %s (%s, %s); no option allows it", e.Path, e.Access, e.git, e.Rule.Origin, e.Rule.Reason)
	case e.Access == policy.Write && e.Rule.Access == policy.Read && !e.Rule.Protect:
		return fmt.Sprintf("%s: it is %s; to allow it: %s", e.Path, plan.NotWritable, runoption.Text(e.fix()))
	}
	return fmt.Sprintf("%s: %s is refused by %s; to allow it: %s", e.Path, e.Access, e.Rule.Origin, runoption.Text(e.fix()))
}

func (e *AccessError) fix() policy.Edit {
	if e.Access == policy.Write {
		return policy.Edit{Field: policy.EditWrite, Value: e.Path}
	}
	return policy.Edit{Field: policy.EditRead, Value: e.Path}
}

// Is makes errors.Is(err, fs.ErrPermission) true.
func (e *AccessError) Is(target error) bool { return target == os.ErrPermission }
