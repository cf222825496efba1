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
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// wrappedName marks a wrapped command in its Args[0], where `ps` shows it too.
const wrappedName = "cloche:"

// Wrap rewrites a prepared command in place, once, so that it runs under the
// session's policy when the caller starts it. Path and Args change; standard
// streams, Dir, SysProcAttr and ExtraFiles stay as they are, with cloche's own
// descriptors behind the caller's. Env is what the policy lets pass of it, or
// of this process's environment if it is nil.
//
// The caller drives the command itself, so the limits on time, output and
// memory do not apply. It is ended when this process or the session ends.
// If the sandbox cannot be made when the command starts, the command ends
// with a status that is not 0 and without having run.
func (s *Session) Wrap(c *exec.Cmd) error {
	if err := s.wrappable(c); err != nil {
		return err
	}
	launch, err := s.wrapLaunch(c)
	if err != nil {
		return err
	}
	s.markWrapped(c)
	if !launch.Confined {
		c.Env = launch.Env
		return nil
	}
	line, err := s.wrapLifeline()
	if err != nil {
		return err
	}
	files, err := supervise.Open(launch, line.reader)
	if err != nil {
		return err
	}
	if err := supervise.MapRoot(c, launch); err != nil {
		return err
	}
	c.Path, c.Args, c.Env = launch.Path, append([]string{wrappedName + launch.Backend}, launch.Argv[1:]...), launch.Env
	c.ExtraFiles = append(c.ExtraFiles, files...)
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
	return s.wrapped[weak.Make(c)]
}

func (s *Session) markWrapped(c *exec.Cmd) {
	p := weak.Make(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrapped == nil {
		s.wrapped = map[weak.Pointer[exec.Cmd]]bool{}
	}
	s.wrapped[p] = true
	runtime.AddCleanup(c, s.forgetWrapped, p)
}

func (s *Session) forgetWrapped(p weak.Pointer[exec.Cmd]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrapped, p)
}

// wrapLaunch makes the plan and the launch for a prepared command.
func (s *Session) wrapLaunch(c *exec.Cmd) (*backend.Launch, error) {
	if len(c.Args) == 0 {
		c.Args = []string{c.Path}
	}
	snap, err := s.snapshot(c.Env)
	if err != nil {
		return nil, err
	}
	dir := c.Dir
	if dir == "" {
		dir = snap.Cwd
	}
	p, err := s.resolve(s.policy, snap, resolve.Request{Name: c.Path, Args: c.Args, Dir: dir, ExtraFiles: len(c.ExtraFiles)})
	if err != nil {
		return nil, err
	}
	run := s.newRun(&Cmd{Args: c.Args, Dir: dir})
	launch, err := s.compileToExec(p, snap)
	if err != nil {
		run.refused(err)
		return nil, err
	}
	return launch, run.wrapped(p, launch)
}

// compileToExec compiles for a backend that starts from a program on the host,
// since the caller starts it by itself: an exec.Cmd cannot run the system calls
// of native and landlock.
func (s *Session) compileToExec(p *plan.Plan, snap *host.Snapshot) (*backend.Launch, error) {
	launch, err := s.compile(p, snap)
	if err != nil || launch.Program == nil {
		return launch, err
	}
	if n := s.policy.Backend.Name; n != "" && n != "auto" && n != "required" {
		return nil, fmt.Errorf("cloche: Wrap: backend %s runs commands only by Session.Command; use that, or another backend", n)
	}
	var none backend.NoBackendError
	for _, e := range s.opts.registry.All() {
		if e.Explicit || e.Backend.Name() == launch.Backend {
			continue
		}
		if err := e.Backend.Available(snap); err != nil {
			none.Errs = append(none.Errs, err)
			continue
		}
		if other, err := e.Backend.Compile(p, snap); err == nil && other.Program != nil {
			none.Errs = append(none.Errs, fmt.Errorf("backend %s runs commands only by Session.Command", other.Backend))
			continue
		}
		return s.compileWith(e.Backend, p, snap)
	}
	return nil, &UnavailableError{Wanted: "a backend that can wrap a command", Err: &none}
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
