package cloche

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// gitRefusal says why a file may not be written although the plan lets it be:
// git outside would run something because of it. Commands are held to the same
// by the broker, which may also write a harmless setting itself; here nobody sees
// what is going to be written, so that is refused too.
func (s *Session) gitRefusal(real string, line plan.Path) *AccessError {
	if s.policy.Disabled || line.Content != plan.Host {
		return nil
	}
	refused := func(rule, reason string) *AccessError {
		return &AccessError{Path: real, Access: policy.Write, Rule: plan.Path{Path: real, Access: policy.Read, Reason: reason,
			Origin: policy.Origin{Source: "git directories are guarded (" + rule + ")"}}}
	}
	folder := filepath.Dir(real)
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // there is nothing to write in either
	}
	defer unix.Close(dir)
	op := gitguard.Write
	if _, err := os.Lstat(real); errors.Is(err, fs.ErrNotExist) {
		op = gitguard.Create
	}
	v := gitguard.Judge(gitguard.Change{Op: op, At: gitguard.Place{Dir: dir, Path: folder, Name: filepath.Base(real)}, Root: line.Source})
	switch {
	case v.Action == gitguard.Refuse:
		return refused(v.Rule, v.Reason)
	case v.Action != gitguard.Allow || len(v.Fresh) > 0:
		return refused(gitguard.RuleConfig, "what is written there has to be checked; use git in a command")
	}
	return nil
}
