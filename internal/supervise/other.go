//go:build !linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/plan"
)

// A child is the launched program. There are no namespaces here, so it is what the backend
// "none" or Seatbelt starts: a process with its own process group.
type child struct {
	proc    *os.Process
	waiter  waiter
	ready   *readiness
	tmp     privateTmp
	settled chan struct{} // closed when it is known whether the command runs
	done    chan struct{}
	// confined: processes that the command leaves in its process group are killed with it.
	confined bool

	mu     sync.Mutex
	reaped bool
	guard  guard
}

// A guard is the broker, which only exists on Linux.
type guard struct{}

func (guard) end() ([]plan.Denial, int, error) { return nil, 0, nil }
func (guard) denied() []plan.Denial            { return nil }

// launch starts the program of the spec. It rejects a launch with parts that only exist on
// Linux.
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

// start starts the program and waits in the background for its report.
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

// launchError distinguishes a launcher that cannot be started from a command that cannot: a
// launch that does not confine executes the command itself.
func launchError(l *backend.Launch, err error) error {
	var path *os.PathError
	var errno syscall.Errno
	if !l.Confined && errors.As(err, &path) && path.Op == "fork/exec" && errors.As(err, &errno) {
		return &ExecError{Path: path.Path, Errno: errno}
	}
	return &SetupError{Backend: l.Backend, Step: "start " + filepath.Base(l.Argv[0]), Err: err}
}

// started reports whether the command runs, once settled is closed.
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

func (c *child) await(until time.Time) (state endState, ended bool) {
	return c.waiter.await(c.proc, until)
}

func (c *child) reap(endState) {
	c.mu.Lock()
	c.reaped = true
	if c.confined {
		killGroup(c.proc)
	}
	c.mu.Unlock()
	// Removing can fail, because files may still be open or lack permissions. The folder is
	// among the caller's temporary files, which the system deletes at some time.
	_ = c.tmp.remove()
	close(c.done)
}

// startError returns why the command never ran.
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

// stops never receives anything: nobody reports stops here.
func (c *child) stops() <-chan syscall.Signal { return nil }

func (c *child) reportsStops() bool { return false }

// settleAtEnd does nothing: the goroutine of start closes settled.
func (c *child) settleAtEnd() {}

// sampled returns no limits: a backend here lists those on memory and processes as gaps.
func (p *Process) sampled() limits { return limits{-1, -1} }

func (p *Process) sample(limits) {}

// letProcessGo does nothing: the waiter has reaped the process.
func (c *child) letProcessGo() {}

// A terminal for the command is only made on Linux.
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

// cleanUp does nothing: reap has released everything.
func (c *child) cleanUp() {}

// killLeft does nothing: after its first process has ended, the number of a process group may
// belong to another group.
func (c *child) killLeft() {}

// A readiness is how a launched program reports that the sandbox is made: one byte on a pipe
// (builtin.Ready). Its output and exit code are not used, because the command could imitate
// them.
type readiness struct {
	ours, childs *os.File // nil: the launch does not report; the command runs as soon as it is started
	said         bool
}

// newReadiness makes the pipe of a launch that has one.
func newReadiness(l *backend.Launch) (*readiness, error) {
	for _, f := range l.Files {
		if f.Kind != builtin.Ready || len(l.Files) > 1 {
			return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
		}
	}
	if len(l.Files) == 0 {
		return &readiness{}, nil
	}
	ours, childs, err := os.Pipe()
	if err != nil {
		return nil, &SetupError{Backend: l.Backend, Step: "make a pipe", Err: err}
	}
	return &readiness{ours: ours, childs: childs}, nil
}

// files returns the descriptors of the launch, which come after the command's own.
func (r *readiness) files() []*os.File {
	if r.childs == nil {
		return nil
	}
	return []*os.File{r.childs}
}

// wait waits for the byte, or until nobody can write it any more.
func (r *readiness) wait() {
	if r.ours == nil {
		r.said = true
		return
	}
	n, _ := r.ours.Read(make([]byte, 1))
	r.said = n == 1
	_ = r.ours.Close()
}

// closeChilds closes this process's copy of the end that the program writes to.
func (r *readiness) closeChilds() {
	if r.childs != nil {
		_ = r.childs.Close()
	}
}

// abort closes both ends, if nothing was started.
func (r *readiness) abort() {
	r.closeChilds()
	if r.ours != nil {
		_ = r.ours.Close()
	}
}

// A privateTmp is the folder for temporary files of one run.
type privateTmp struct{ dir string }

// newPrivateTmp creates the temporary folder of a launch that has one, among the caller's own
// temporary files. It returns the path with links resolved, because a Seatbelt profile follows
// no links.
func newPrivateTmp(l *backend.Launch) (privateTmp, error) {
	if l.PrivateTmp == "" {
		return privateTmp{}, nil
	}
	dir, err := os.MkdirTemp("", "cloche-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return privateTmp{}, &SetupError{Backend: l.Backend, Step: "make a folder for temporary files", Err: err}
	}
	return privateTmp{dir}, nil
}

// tell adds the folder to the program's arguments and environment.
func (t privateTmp) tell(l *backend.Launch) (argv, env []string) {
	argv, env = l.Argv, append([]string{}, l.Env...)
	if t.dir == "" {
		return argv, env
	}
	argv = append([]string{argv[0], "-D", l.PrivateTmp + "=" + t.dir}, argv[1:]...)
	for _, kv := range env {
		if strings.HasPrefix(kv, "TMPDIR=") {
			return argv, env
		}
	}
	return argv, append(env, "TMPDIR="+t.dir)
}

// remove removes the folder. It follows no link that the command left in it.
func (t privateTmp) remove() error {
	if t.dir == "" {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// notMade returns the error for a program that ended before it reported that the sandbox is
// made. The exit codes are those of sandbox-exec.
func notMade(l *backend.Launch, state *os.ProcessState) error {
	e := &SetupError{Backend: l.Backend, Step: "enter the sandbox"}
	switch {
	case state == nil:
		e.Err = errors.New("the launcher is gone")
	case state.ExitCode() == 65:
		e.Detail = "macOS does not read the profile; cloche explain --sbpl prints it"
	case state.ExitCode() == 71:
		e.Detail = "macOS does not apply the profile: a process that is in a sandbox already cannot enter another one"
	default:
		e.Detail = fmt.Sprintf("%s ended before the command: %s", filepath.Base(l.Argv[0]), state)
	}
	return e
}

// Wrap rewrites a command so that it runs the launch when the caller starts it. Its temporary
// folder is removed when the command is garbage-collected, or by the system.
func Wrap(c *exec.Cmd, spec Spec, _ *os.File, name string) error {
	l := spec.Launch
	if l.Init || l.MapRoot || l.Program != nil {
		return &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	if err := prepare(l); err != nil {
		return err
	}
	tmp, err := newPrivateTmp(l)
	if err != nil {
		return err
	}
	argv, env := tmp.tell(l)
	for range l.Files { // nobody reads what the program reports
		null, err := openNull(os.O_WRONLY)
		if err != nil {
			return &SetupError{Backend: l.Backend, Step: "open the null device", Err: errors.Join(err, tmp.remove())}
		}
		c.ExtraFiles = append(c.ExtraFiles, null)
	}
	c.Path, c.Args, c.Env = program(l), append([]string{name}, argv[1:]...), env
	runtime.AddCleanup(c, func(t privateTmp) { _ = t.remove() }, tmp)
	return nil
}

// parked is empty: there are no namespaces here.
type parked struct{}

// Park fails: only Linux can keep a sandbox ready.
func Park(_ context.Context, l *backend.Launch, _ MakeNetwork) (*Parked, error) {
	return nil, &SetupError{Backend: l.Backend, Step: "park the sandbox", Err: errors.ErrUnsupported}
}

func (*parked) ended() bool { return true }

func (*parked) retire() {}

func (*parked) end() {}

// A Held is the caller's terminal while the command cannot use it. On this system commands
// have no terminal of their own.
type Held struct{}

// HoldTerminal returns false on this system.
func (p *Process) HoldTerminal() (*Held, bool) { return nil, false }

// PrintLine prints nothing.
func (p *Process) PrintLine(string) bool { return false }

// Write prints nothing.
func (h *Held) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Key returns io.EOF.
func (h *Held) Key(context.Context) (byte, error) { return 0, io.EOF }

// Release does nothing.
func (h *Held) Release() {}

func (t *terminal) gated(w io.Writer, _ *gate) io.Writer { return w }

// A relay is not needed on this system: reopening a descriptor gives no more access than it
// has.
type relay struct{}

func newRelay(*os.File) (*relay, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func (*relay) run()   {}
func (*relay) end()   {}
func (*relay) close() {}

func duplicate(f *os.File) (*os.File, error) { return f, nil }

func reopens(fs.FileMode) bool { return false }

func harmlessDevice(*os.File, fs.FileInfo) bool { return true }

// An unread needs a system that reports how much is left in a pipe.
type unread struct{ copied chan int64 }

func newUnread(_, _ *os.File) *unread { return nil }

func (*unread) giveBack() {}

func (*unread) close() {}

// Owns returns false: a run's processes cannot be identified here.
func (p *Process) Owns(int) bool { return false }
