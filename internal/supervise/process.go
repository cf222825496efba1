package supervise

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// A Process is a run that was started.
type Process struct {
	spec  Spec
	child *child
	io    *stdio
	term  *terminal // nil without a terminal
	gate  gate      // of output to the caller's terminal: see HoldTerminal

	started time.Time
	mu      sync.Mutex
	end     ending
	done    chan struct{} // closed when outcome and err are final
	outcome Outcome
	err     error
	// startErr is why the command never ran.
	startErr error
	// untold: that the command runs becomes known only at its end, so that its limits
	// count from the launch on.
	untold bool
}

// An ending is why the supervisor ended a run; the first reason stays.
type ending struct {
	timedOut, canceled bool
	exceeded           string
	asked              chan struct{} // closed by the first reason
}

// Start starts the run and returns when the command runs. It returns a
// *SetupError, *ChangedError or *ExecError if it never did; nothing is left
// then. A run that ctx or its timeout ended during the start is no error of
// Start: Wait tells about it.
//
// Once started, the end of ctx ends the run.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := newProcess(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.child.attend()
	unwatch := p.watch(ctx)
	go p.finish(unwatch)
	p.child.settle()
	if !p.child.started() {
		<-p.done
		if p.startErr != nil {
			return nil, p.startErr
		}
	}
	return p, nil
}

// Run is Start and Wait in one, for a caller that has no use for the process while
// it runs: nobody is woken only to be told that the command runs. When it returns
// with no error, Wait returns at once.
func Run(ctx context.Context, spec Spec) (*Process, error) {
	p, err := newProcess(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.untold = true
	unwatch := p.watchLate(ctx)
	p.child.settleAtEnd()
	p.collect(unwatch)
	go p.cleanUp()
	if p.startErr != nil {
		return nil, p.startErr
	}
	return p, nil
}

// newProcess launches the program.
func newProcess(ctx context.Context, spec Spec) (*Process, error) {
	p := &Process{spec: spec, done: make(chan struct{})}
	p.end.asked = make(chan struct{})
	err := p.begin(ctx)
	spec.Ahead.Discard() // unless it was used
	if err != nil {
		spec.Parked.Release()
		return nil, err
	}
	return p, nil
}

func (p *Process) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.spec.check(); err != nil {
		return err
	}
	return p.launch(ctx)
}

func (s *Spec) check() error {
	l := s.Launch
	if l == nil || len(l.Argv) == 0 && l.Program == nil {
		return errors.New("supervise: there is nothing to launch")
	}
	if len(l.Files) > 0 && l.FirstFD != 3+len(s.ExtraFiles) {
		return &SetupError{Backend: l.Backend, Step: "number the descriptors",
			Detail: "the launch was compiled for another number of extra files"}
	}
	return nil
}

// launch connects the streams and starts the program.
func (p *Process) launch(ctx context.Context) (err error) {
	if p.spec.Terminal {
		if p.term, err = newTerminal(&p.spec); err != nil {
			return p.setupError("make a terminal", err)
		}
	}
	if p.io, err = newStdio(&p.spec, p.term, &p.gate, func() { p.exceed("output") }); err != nil {
		p.term.close()
		return p.setupError("connect the standard streams", err)
	}
	p.started = time.Now()
	p.child, err = launch(ctx, &p.spec, p.io.child)
	p.io.closeChildEnds()
	if err != nil {
		p.io.abort()
		p.term.close()
		return err
	}
	p.term.start()
	p.io.start()
	return nil
}

func (p *Process) setupError(step string, err error) error {
	return &SetupError{Backend: p.spec.Launch.Backend, Step: step, Err: err}
}

func (p *Process) asked() bool {
	select {
	case <-p.end.asked:
		return true
	default:
		return false
	}
}

// ask records the reason for ending the run, unless there is one already.
func (p *Process) ask(set func(*ending)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked() {
		set(&p.end)
		close(p.end.asked)
		go p.terminate()
	}
}

func (p *Process) exceed(limit string) { p.ask(func(e *ending) { e.exceeded = limit }) }

// watch sees to it that the run is ended when its time is up, when it is
// canceled, or when it exceeds a limit. Until then nothing runs for that: most
// commands are short.
func (p *Process) watch(ctx context.Context) (unwatch func()) {
	uncancel, unlimit := p.watchCancel(ctx), p.watchLimits(0)
	return func() {
		uncancel()
		unlimit()
	}
}

// watchLate is watch for who waits for the run anyway. For a command that ends
// before the first look at its limits there is no timer: to set one wakes a thread,
// which takes the processor from the command.
func (p *Process) watchLate(ctx context.Context) (unwatch func()) {
	uncancel, began := p.watchCancel(ctx), time.Now()
	patience := p.spec.firstLook()
	if p.spec.Timeout > 0 {
		patience = min(patience, p.spec.Timeout)
	}
	if p.child.endsWithin(patience) {
		return uncancel
	}
	p.child.attend()
	unlimit := p.watchLimits(time.Since(began))
	return func() {
		uncancel()
		unlimit()
	}
}

func (p *Process) watchCancel(ctx context.Context) (unwatch func()) {
	stop := context.AfterFunc(ctx, func() { p.ask(func(e *ending) { e.canceled = true }) })
	return func() { stop() }
}

// How often a run is held against the limits that are sampled, and when for the first
// time if it could exceed them sooner.
const (
	sampleEvery = 100 * time.Millisecond
	sampleSoon  = 10 * time.Millisecond
)

// What no run uses up between two looks, as far as that goes: a processor makes some
// ten thousand processes and fills some gigabytes of new memory in a second.
const (
	manyTasks  = 1000
	muchMemory = 1 << 30
)

// firstLook is when the run is first held against its limits. A limit that is not
// reached before may as well be looked at later: to look takes time from the command.
func (s *Spec) firstLook() time.Duration {
	if s.Memory >= 0 && s.Memory < muchMemory || s.Processes >= 0 && s.Processes < manyTasks {
		return sampleSoon
	}
	return sampleEvery
}

// watchLimits is for a run that has gone on for some time.
func (p *Process) watchLimits(since time.Duration) (unwatch func()) {
	expire := func() bool { return true }
	if p.spec.Timeout > 0 {
		expire = time.AfterFunc(p.spec.Timeout-since, func() { p.ask(func(e *ending) { e.timedOut = true }) }).Stop
	}
	unsample := p.sample(p.spec.firstLook() - since)
	return func() {
		expire()
		unsample()
	}
}

// terminate ends the tree: first with a warning, if the run has time for that.
func (p *Process) terminate() {
	select {
	case <-p.child.done: // and its numbers may mean other processes
		return
	default:
	}
	if p.end.exceeded == "" && p.spec.KillDelay > 0 && p.child.running() {
		_ = p.child.signal(syscall.SIGTERM)
		// A stopped command could not react to it.
		_ = p.child.signal(sigCont)
		select {
		case <-p.child.done:
			return
		case <-time.After(p.spec.KillDelay):
		}
	}
	p.child.kill()
}

// finish collects the outcome once the tree is gone, and then sees to what is left.
func (p *Process) finish(unwatch func()) {
	p.collect(unwatch)
	runtime.Gosched() // those who wait for the run come first
	p.cleanUp()
}

func (p *Process) collect(unwatch func()) {
	state := p.child.reap()
	if p.asked() {
		p.child.killLeft()
	}
	unwatch()
	p.child.endNetwork()
	denied, more, guardErr := p.child.guard.end()
	p.spec.Parked.releaseAfter(p.child.letProcessGo)
	ioErr := p.io.drain(p.asked())
	p.term.close()
	p.outcome.Denied, p.outcome.DeniedMore = denied, more
	p.conclude(state, errors.Join(ioErr, guardErr))
}

// Denied is what the guard has refused so far, while the command runs.
func (p *Process) Denied() []plan.Denial { return p.child.guard.denied() }

// cleanUp does what nobody has to wait for.
func (p *Process) cleanUp() {
	p.child.closeStatus()
	p.child.letProcessGo()
	p.child.guard.free()
	p.child.letMountsGo()
	p.child.prepareNext()
}

func (p *Process) conclude(state endState, ioErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcome, p.err = p.result(state), ioErr
	if !p.asked() {
		p.startErr = p.child.startError(&p.spec, state)
	}
	close(p.done)
}

func (p *Process) result(state endState) Outcome {
	o := Outcome{
		TimedOut:   p.end.timedOut,
		Canceled:   p.end.canceled,
		Exceeded:   p.end.exceeded,
		Truncated:  p.end.exceeded == "output",
		Duration:   time.Since(p.started),
		Denied:     p.outcome.Denied,
		DeniedMore: p.outcome.DeniedMore,
	}
	o.ExitCode, o.Signal = p.child.status(state)
	if state != nil {
		o.UserTime, o.SystemTime, o.MaxRSS = state.UserTime(), state.SystemTime(), maxRSS(state)
	}
	return o
}

// Wait waits for the end of the run and returns how it went. The whole tree is
// gone and all output is delivered by then. The error is not about the command:
// it is one of writing to Stdout or Stderr. Wait may be called more than once.
func (p *Process) Wait() (Outcome, error) {
	<-p.done
	return p.outcome, p.err
}

// Done is closed at the end of the run.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the command: to its process group for those that a
// terminal sends, to itself alone for others.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.child.running() {
		return os.ErrProcessDone
	}
	return p.child.signal(sig)
}

// RestoreTerminal puts the caller's terminal back into the state that it had
// before the run. Wait does that; this is for a deferred call that outlives a
// panic.
func (p *Process) RestoreTerminal() { p.term.detach() }
