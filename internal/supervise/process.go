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

// A Process is a started run.
type Process struct {
	spec  Spec
	child *child
	io    *stdio
	term  *terminal // nil without a terminal
	gate  gate      // for output to the caller's terminal: see HoldTerminal

	started time.Time
	mu      sync.Mutex
	end     ending
	done    chan struct{} // closed when outcome and err are final
	outcome Outcome
	err     error
	// startErr is why the command never ran.
	startErr error
}

// An ending is why the supervisor ended a run. Only the first reason is kept.
type ending struct {
	timedOut, canceled bool
	exceeded           string
	asked              chan struct{} // closed by the first reason
}

// Start starts the run and returns when the command runs, or with Spec.ToEnd when it has
// ended. It returns a *SetupError, *ChangedError or *ExecError if the command never ran; no
// process is left then. If ctx or the timeout ended the run during the start, Start returns no
// error, and Wait reports it.
//
// After the start, the end of ctx ends the run.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	p := &Process{spec: spec, done: make(chan struct{})}
	p.end.asked = make(chan struct{})
	err := ctx.Err()
	if err == nil {
		err = p.spec.check()
	}
	if err == nil {
		err = p.launch(ctx)
	}
	spec.Ahead.Discard() // does nothing if it was used
	if err != nil {
		spec.Parked.Release()
		return nil, err
	}
	uncancel := context.AfterFunc(ctx, func() { p.ask(func(e *ending) { e.canceled = true }) })
	if spec.ToEnd {
		p.child.settleAtEnd()
		p.finish(uncancel)
		go p.child.cleanUp()
	} else {
		go func() {
			p.finish(uncancel)
			runtime.Gosched() // let the goroutine that waits for the run go first
			p.child.cleanUp()
		}()
		p.child.settle()
		if !p.child.started() {
			<-p.done
		}
	}
	select {
	case <-p.done:
		if p.startErr != nil {
			return nil, p.startErr
		}
	default:
	}
	return p, nil
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

// ask records a reason for ending the run and ends it, unless there is a reason already.
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

// keepLimits waits for the end of the process. It ends the run when its time is up or when it
// exceeds a limit that the kernel does not enforce. It uses no timers: setting one wakes a
// thread, and most commands end before the first would expire.
func (p *Process) keepLimits() (state endState) {
	sampled := p.sampled()
	var expires time.Time // zero means never
	if p.spec.Timeout > 0 {
		expires = p.started.Add(p.spec.Timeout)
	}
	sample := p.started.Add(p.spec.firstSample())
	for {
		state, ended := p.child.await(earlier(expires, sample))
		if ended {
			return state
		}
		now := time.Now()
		if !expires.IsZero() && !now.Before(expires) {
			p.ask(func(e *ending) { e.timedOut = true })
			expires = time.Time{}
		}
		if !sample.IsZero() && !now.Before(sample) {
			sample = time.Time{}
			if sampled.any() {
				p.sample(sampled)
				sample = time.Now().Add(sampleEvery)
			}
		}
	}
}

// earlier returns the earlier of two times. A zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sampleEvery is how often the limits that the kernel does not enforce are checked. sampleSoon
// is when they are first checked if the run could exceed them before sampleEvery.
const (
	sampleEvery = 100 * time.Millisecond
	sampleSoon  = 10 * time.Millisecond
)

// No run can exceed these limits within sampleEvery: in a second, a processor creates some ten
// thousand processes and fills some gigabytes of new memory.
const (
	manyTasks  = 1000
	muchMemory = 1 << 30
)

// firstSample returns when the limits are first checked. It is as late as possible, because
// most commands end before, and checking takes time from the command.
func (s *Spec) firstSample() time.Duration {
	if s.Memory >= 0 && s.Memory < muchMemory || s.Processes >= 0 && s.Processes < manyTasks {
		return sampleSoon
	}
	return sampleEvery
}

// terminate ends the tree. If the run has a KillDelay, the command gets SIGTERM first.
func (p *Process) terminate() {
	select {
	case <-p.child.done: // its pids may belong to other processes by now
		return
	default:
	}
	if p.end.exceeded == "" && p.spec.KillDelay > 0 && p.child.running() {
		_ = p.child.signal(syscall.SIGTERM)
		// A stopped command could not react to SIGTERM.
		_ = p.child.signal(sigCont)
		select {
		case <-p.child.done:
			return
		case <-time.After(p.spec.KillDelay):
		}
	}
	p.child.kill()
}

// finish waits for the end of the tree and collects the outcome.
func (p *Process) finish(uncancel func() bool) {
	state := p.keepLimits()
	p.child.reap(state)
	if p.asked() {
		p.child.killLeft()
	}
	uncancel()
	p.child.endNetwork()
	denied, more, guardErr := p.child.guard.end()
	p.spec.Parked.releaseAfter(p.child.letProcessGo)
	ioErr := p.io.drain(p.asked())
	p.term.close()
	p.outcome.Denied, p.outcome.DeniedMore = denied, more
	p.conclude(state, errors.Join(ioErr, guardErr))
}

// Denied returns the denials so far, while the command runs.
func (p *Process) Denied() []plan.Denial { return p.child.guard.denied() }

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

// Wait waits for the end of the run and returns its outcome. By then the whole tree has ended
// and all output is delivered. The error is not about the command: it comes from writing to
// Stdout or Stderr, or from the broker. Wait may be called more than once.
func (p *Process) Wait() (Outcome, error) {
	<-p.done
	return p.outcome, p.err
}

// Done is closed at the end of the run.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the command: to its process group if it is one that a terminal
// sends, otherwise to the command alone.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.child.running() {
		return os.ErrProcessDone
	}
	return p.child.signal(sig)
}

// RestoreTerminal restores the caller's terminal to its state before the run. Wait does that
// too; this is for a deferred call after a panic.
func (p *Process) RestoreTerminal() { p.term.detach() }

// limits are the limits on memory and processes. A negative value means no limit.
type limits struct{ memory, processes int64 }

func (l limits) any() bool { return l.memory >= 0 || l.processes >= 0 }

// A waiter waits for a process in a goroutine, so that await can return before the process has
// ended.
type waiter struct {
	start sync.Once
	state endState
	done  chan struct{}
}

// await waits until the process ends or a time is reached; the zero time means no limit. The
// state is nil if it is not known.
func (w *waiter) await(proc *os.Process, until time.Time) (state endState, ended bool) {
	w.start.Do(func() {
		w.done = make(chan struct{})
		go func() {
			if state, err := proc.Wait(); err == nil {
				w.state = state
			}
			close(w.done)
		}()
	})
	var late <-chan time.Time
	if !until.IsZero() {
		late = time.After(time.Until(until))
	}
	select {
	case <-w.done:
		return w.state, true
	case <-late:
		return nil, false
	}
}
