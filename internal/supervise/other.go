//go:build !linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// A child is the launched program. There are no namespaces here, so it is what
// the backend "none" and Seatbelt start: a process with a group of its own.
type child struct {
	proc    *os.Process
	settled chan struct{}
	done    chan struct{}

	mu     sync.Mutex
	reaped bool
	guard  guard
}

// A guard answers calls of the command, which only Linux can hand over.
type guard struct{}

func (guard) end() ([]plan.Denial, int, error) { return nil, 0, nil }

// launch starts the program of the spec. Descriptors that only exist on Linux
// are refused.
func launch(_ context.Context, spec *Spec, std [3]*os.File) (*child, error) {
	l := spec.Launch
	if l.Init || l.MapRoot || len(l.Files) > 0 {
		return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	if err := prepare(l); err != nil {
		return nil, err
	}
	proc, err := os.StartProcess(program(l), l.Argv, &os.ProcAttr{
		Dir: l.Dir, Env: append([]string{}, l.Env...),
		Files: append(std[:], spec.ExtraFiles...), Sys: sysProcAttr(),
	})
	if err != nil {
		return nil, launchError(l, err)
	}
	c := &child{proc: proc, settled: make(chan struct{}), done: make(chan struct{})}
	close(c.settled)
	return c, nil
}

func prepare(l *backend.Launch) error {
	for _, dir := range l.CreateDirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return &SetupError{Backend: l.Backend, Step: "make a folder of the store", Err: err}
		}
	}
	for _, path := range l.MustExist {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return &ChangedError{Path: path, Err: os.ErrNotExist}
		}
	}
	return nil
}

// launchError: a launcher that confines is a program of its own; without one
// the program that could not be started is the command.
func launchError(l *backend.Launch, err error) error {
	var path *os.PathError
	var errno syscall.Errno
	if !l.Confined && errors.As(err, &path) && path.Op == "fork/exec" && errors.As(err, &errno) {
		return &ExecError{Path: path.Path, Errno: errno}
	}
	return &SetupError{Backend: l.Backend, Step: "start " + filepath.Base(l.Argv[0]), Err: err}
}

func (c *child) started() bool { return true }

func (c *child) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.reaped
}

func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		killGroup(c.proc)
	}
}

func (c *child) signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return os.ErrProcessDone
	}
	return signalGroup(c.proc, sig)
}

func (c *child) reap() *os.ProcessState {
	state, _ := c.proc.Wait()
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	close(c.done)
	return state
}

func (c *child) startError(*Spec, *os.ProcessState) error { return nil }

// settle returns at once: what was started runs.
func (c *child) settle() { <-c.settled }

// letMountsGo does nothing: there are no mounts here.
func (c *child) letMountsGo() {}

// endNetwork does nothing: no launch has a network made for it here.
func (c *child) endNetwork() {}

// stops never tells: nobody reports stops here.
func (c *child) stops() <-chan syscall.Signal { return nil }

func (c *child) reportsStops() bool { return false }

// sample does nothing: a backend here lists the limits on memory and processes
// as gaps.
func (p *Process) sample() (stop func()) { return func() {} }

// A terminal of the command's own is made only on Linux.
type terminal struct{ master, slave *os.File }

func newTerminal(*Spec) (*terminal, error) {
	return nil, fmt.Errorf("a terminal of its own for the command: %w", errors.ErrUnsupported)
}

func (t *terminal) start()  {}
func (t *terminal) close()  {}
func (t *terminal) detach() {}
func (t *terminal) resume() {}

func pipeFromChild() (ours, childs *os.File, err error) { return os.Pipe() }

func pipeToChild() (childs, ours *os.File, err error) { return os.Pipe() }

func openNull(flag int) (*os.File, error) { return os.OpenFile(os.DevNull, flag, 0) }
