package cloche

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Wrap rewrites a prepared command in place, once, so that it runs under the session's policy
// when the caller starts it, now or much later. Path and Args change; standard streams, Dir,
// SysProcAttr and ExtraFiles stay as they are, with cloche's own descriptors after the
// caller's. Env becomes the part of it that the policy lets pass, or of this process's
// environment if it is nil. On the backends native and landlock the caller can still add to
// it.
//
// If a stream is an *os.File, the command gets that file itself and can reopen it through
// /proc/self/fd: a file with more access, a pipe at its other end. If it is another reader or
// writer, package exec copies the data, and the command gets nothing of the caller's.
//
// The caller starts and ends the command itself, so the limits on time, output and memory do
// not apply. The started program is a launcher that makes the sandbox, forwards signals, and
// ends as the command does: with its exit code, or on native and landlock by the same signal.
// (On bwrap the exit code is 128 plus the signal's number.) SIGSTOP to the launcher does not
// stop the command, SIGTSTP does.
//
// The command is ended when the launcher, this process or the session ends. On bwrap signals
// are not forwarded: a signal that ends the launcher ends the command. If the sandbox cannot
// be made when the command starts, the command does not run: the launcher prints the reason to
// the command's standard error and exits with 125.
//
// As root with bwrap, a wrapped command could change mode and owner of the host's device
// nodes. That is a gap: with a strict policy, Wrap fails.
func (s *Session) Wrap(c *exec.Cmd) error {
	if err := s.wrappable(c); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		c.Args = []string{c.Path}
	}
	run := s.newRun(c.Args, c.Dir)
	refused := func(err error) { recordRefusal(run, err) }
	err := s.engine.Wrap(c, run, refused)
	if err != nil {
		refused(err)
	}
	return err
}

func (s *Session) wrappable(c *exec.Cmd) error {
	switch {
	case s.engine.Closed():
		return ErrClosed
	case c.Err != nil:
		return c.Err
	case c.Process != nil:
		return errors.New("cloche: Wrap: the command was started already")
	case s.engine.IsWrapped(c):
		return errors.New("cloche: the command is wrapped already")
	case c.Path == "":
		return errors.New("cloche: Wrap: the command has an empty Path")
	case !filepath.IsAbs(c.Path):
		return fmt.Errorf("cloche: Wrap: Path %q is relative; use an absolute path, as exec.Command finds it", c.Path)
	}
	return nil
}
