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
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// A child is the launched program. There are no namespaces here, so it is what
// the backend "none" and Seatbelt start: a process with a group of its own.
type child struct {
	proc    *os.Process
	ready   *readiness
	tmp     privateTmp
	settled chan struct{} // closed when it is known whether the command runs
	done    chan struct{}
	// confined: what the command leaves in its process group ends with it.
	confined bool

	mu     sync.Mutex
	reaped bool
	guard  guard
}

// A guard answers calls of the command, which only Linux can hand over.
type guard struct{}

func (guard) end() ([]plan.Denial, int, error) { return nil, 0, nil }
func (guard) denied() []plan.Denial            { return nil }

// launch starts the program of the spec. Descriptors that only exist on Linux
// are refused.
func launch(_ context.Context, spec *Spec, std [3]*os.File) (*child, error) {
	l := spec.Launch
	if l.Init || l.MapRoot || l.Program != nil {
		return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	if err := prepare(l); err != nil {
		return nil, err
	}
	ready, err := newReadiness(l)
	if err != nil {
		return nil, err
	}
	tmp, err := newPrivateTmp(l)
	if err != nil {
		ready.abort()
		return nil, err
	}
	c := &child{ready: ready, tmp: tmp, settled: make(chan struct{}), done: make(chan struct{}), confined: l.Confined}
	if err := c.start(spec, std); err != nil {
		ready.abort()
		return nil, errors.Join(launchError(l, err), tmp.remove())
	}
	return c, nil
}

// start starts the program and looks out for what it says.
func (c *child) start(spec *Spec, std [3]*os.File) (err error) {
	argv, env := c.tmp.tell(spec.Launch)
	files := append(std[:], spec.ExtraFiles...)
	c.proc, err = os.StartProcess(program(spec.Launch), argv, &os.ProcAttr{
		Dir: spec.Launch.Dir, Env: env, Files: append(files, c.ready.files()...), Sys: sysProcAttr(),
	})
	if err != nil {
		return err
	}
	c.ready.closeChilds()
	go func() {
		defer close(c.settled)
		c.ready.wait()
	}()
	return nil
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

// started reports whether the command runs, once that is settled.
func (c *child) started() bool { return c.ready.said }

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

// An endState is how a process ended.
type endState = *os.ProcessState

func (c *child) reap() endState {
	state, _ := c.proc.Wait()
	c.mu.Lock()
	c.reaped = true
	if c.confined {
		killGroup(c.proc)
	}
	c.mu.Unlock()
	// What the command left there may be open still, or closed to us: the folder is
	// among the caller's temporary files, which the system clears.
	_ = c.tmp.remove()
	close(c.done)
	return state
}

// startError is why the command never ran.
func (c *child) startError(spec *Spec, state *os.ProcessState) error {
	if c.settle(); c.started() {
		return nil
	}
	return notMade(spec.Launch, state)
}

// settle waits until it is known whether the command runs.
func (c *child) settle() { <-c.settled }

// endNetwork does nothing: no launch has a network made for it here.
func (c *child) endNetwork() {}

// stops never tells: nobody reports stops here.
func (c *child) stops() <-chan syscall.Signal { return nil }

func (c *child) reportsStops() bool { return false }

// sample does nothing: a backend here lists the limits on memory and processes
// as gaps.
func (p *Process) sample(time.Duration) (stop func()) { return func() {} }

// letProcessGo does nothing: there is nothing to let go.
func (c *child) letProcessGo() {}

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

// cleanUp does nothing: reap has left nothing.
func (c *child) cleanUp() {}

// killLeft does nothing: the number of a group whose first process is gone may mean
// another one.
func (c *child) killLeft() {}
