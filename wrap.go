package cloche

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"weak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// wrappedName marks a wrapped command in its Args[0], where `ps` shows it too.
const wrappedName = "cloche:"

// Wrap rewrites a prepared command in place, once, so that it runs under the
// session's policy when the caller starts it, now or much later. Path and Args
// change; standard streams, Dir, SysProcAttr and ExtraFiles stay as they are, with
// cloche's own descriptors behind the caller's. Env is what the policy lets
// pass of it, or of this process's environment if it is nil; on the backends
// native and landlock the caller can still add to it.
//
// A stream that is an *os.File is the command's own then: it can open it again through
// /proc/self/fd, a file with more rights and a pipe at its other end. A reader or a
// writer that is no file, which package exec copies, gives it nothing of the caller's.
//
// The caller drives the command itself, so the limits on time, output and
// memory do not apply. What it starts is a launcher that makes the sandbox,
// forwards signals, and ends as the command does: with its exit code, or on native
// and landlock by the same signal. (On bwrap it is 128 and the signal's number.)
// Stopping the launcher does not stop the command, SIGTSTP does.
//
// The command is ended when the launcher, this process or the session ends. On
// bwrap signals are not forwarded: one that ends the launcher ends the command. If
// the sandbox cannot be made when the command starts, the command does not run:
// the launcher says why on the command's standard error and exits with 125.
//
// As root with bwrap, a wrapped command could change mode and owner of the host's device
// nodes. That is a gap: a strict policy refuses it.
func (s *Session) Wrap(c *exec.Cmd) error {
	if err := s.wrappable(c); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		c.Args = []string{c.Path}
	}
	run := s.newRun(&Cmd{Args: c.Args, Dir: c.Dir})
	var err error
	for range maxTries {
		err = s.tryWrap(c, run)
		// A file that the plan is about changed: look again.
		var changed *supervise.ChangedError
		if !errors.As(err, &changed) || changed.Replaced() {
			break
		}
	}
	if err != nil {
		recordRefusal(run, err)
	}
	return err
}

func (s *Session) tryWrap(c *exec.Cmd, run *runlog.Run) error {
	p, launch, err := s.wrapLaunch(c)
	if err != nil {
		return err
	}
	if err := run.Wrapped(p, launch); err != nil {
		return err
	}
	if !launch.Confined {
		s.markWrapped(c, newWrapRecord(p, launch, run, nil))
		c.Env = launch.Env
		return nil
	}
	line, err := s.wrapLifeline()
	if err != nil {
		return err
	}
	net, err := netservice.New(p, launch)
	if err != nil {
		return err
	}
	ask := s.askerFor(p, run)
	refused := newWrapRecord(p, launch, run, net.Join(run, asksHosts(ask)))
	spec := supervise.Spec{Launch: launch, Plan: p, Refused: refused.end, Ask: asks(ask), Lock: s.lockFile(), Command: p.Command.Path, Network: run.EndingWith(net.Maker()), NoNetwork: net.Unused(func(err error) { recordRefusal(run, err) })}
	if err := supervise.Wrap(c, spec, line.reader, wrappedName+launch.Backend); err != nil {
		net.Close()
		return fmt.Errorf("cloche: Wrap: %w", err)
	}
	s.markWrapped(c, refused)
	return nil
}

func (s *Session) wrappable(c *exec.Cmd) error {
	switch {
	case s.isClosed():
		return ErrClosed
	case c.Err != nil:
		return c.Err
	case c.Process != nil:
		return errors.New("cloche: Wrap: the command was started already")
	case s.isWrapped(c):
		return ErrWrapped
	case c.Path == "":
		return errors.New("cloche: Wrap: the command has an empty Path")
	case !filepath.IsAbs(c.Path):
		return fmt.Errorf("cloche: Wrap: Path %q is relative; use an absolute path, as exec.Command finds it", c.Path)
	}
	return nil
}

// isWrapped knows a command that any session confined by its Args[0], and one
// that this session passed through by its address.
func (s *Session) isWrapped(c *exec.Cmd) bool {
	if len(c.Args) > 0 && strings.HasPrefix(c.Args[0], wrappedName) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrapped[weak.Make(c)] != nil
}

func (s *Session) markWrapped(c *exec.Cmd, record *wrapRecord) {
	p := weak.Make(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrapped == nil {
		s.wrapped = map[weak.Pointer[exec.Cmd]]*wrapRecord{}
	}
	s.wrapped[p] = record
	runtime.AddCleanup(c, s.forgetWrapped, p)
}

func (s *Session) forgetWrapped(p weak.Pointer[exec.Cmd]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrapped, p)
}

// wrapLaunch makes the plan and the launch for a prepared command.
func (s *Session) wrapLaunch(c *exec.Cmd) (p *plan.Plan, launch *backend.Launch, err error) {
	snap, err := s.snapshot(c.Env)
	if err != nil {
		return nil, nil, err
	}
	dir := c.Dir
	if dir == "" {
		dir = snap.Cwd
	}
	p, err = s.resolve(s.effective(), snap, resolve.Request{Name: c.Path, Args: c.Args, Dir: dir, ExtraFiles: len(c.ExtraFiles)})
	if err != nil {
		return nil, nil, err
	}
	if err := s.wrapBus(p, snap); err != nil {
		return nil, nil, err
	}
	launch, err = s.compile(s.choice(snap), p, snap)
	if err == nil && launch.SealNodes {
		launch.Gaps = append(launch.Gaps, nodesGap)
		err = refuseGaps(p, launch)
	}
	return p, launch, err
}

// nodesGap: Run seals the host's device nodes in the thread that starts bubblewrap. Whoever
// starts a wrapped command has no such thread.
var nodesGap = backend.Gap{
	Rule: "device nodes", Subject: "/dev", Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: devices"},
	Reason: "a wrapped command of root could change mode and owner of the host's device nodes, such as /dev/null, which bubblewrap shows",
	Fix:    "use the backend native, or start the command with Session.Command",
}

// A lifeline is a pipe that wrapped commands watch: its end of file, when the
// session is closed or this process is gone, ends them.
type lifeline struct {
	reader, writer *os.File
}

func (s *Session) wrapLifeline() (*lifeline, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.lifeline == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("cloche: Wrap: %w", err)
		}
		s.lifeline = &lifeline{r, w}
	}
	return s.lifeline, nil
}

func (l *lifeline) close() error { return errors.Join(l.writer.Close(), l.reader.Close()) }
