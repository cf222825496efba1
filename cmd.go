package cloche

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/asking"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// TTY says when a command gets a terminal of its own.
type TTY = supervise.TTYMode

// The modes. Auto gives a terminal where standard input and output are both
// terminals.
const (
	TTYNever  = supervise.TTYNever
	TTYAuto   = supervise.TTYAuto
	TTYAlways = supervise.TTYAlways
)

// maxTries is how often a plan is made again because a file that it is about
// changed before the start.
const maxTries = 4

// A Cmd is a command that will run, or runs, under a policy. Its fields have
// the meaning of those of [os/exec.Cmd]; it does not embed one, because a
// method of that would run unconfined.
type Cmd struct {
	// Args are the arguments; Args[0] is the name as given to Command.
	Args []string
	// Env stands in for the caller's environment; nil is that of this process.
	// The policy decides what passes of it. To hand a value over that the
	// policy would hold back, use SetEnv.
	Env []string
	// Dir is the working folder on the host; empty is the workspace.
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// ExtraFiles become the descriptors from 3 on inside. Each is a grant.
	ExtraFiles []*os.File
	// TTY says when the command gets a terminal; the zero value is never.
	TTY TTY
	// KillDelay is the time between SIGTERM and SIGKILL for a command that is
	// out of time or canceled. With 0 it is killed at once.
	KillDelay time.Duration
	// Prepared, if set, is called once when everything is ready and nothing
	// runs yet: a front end says there what its user should know first.
	Prepared func(*plan.Plan, *backend.Launch)

	ctx     context.Context
	session *Session
	err     error // that Command found; Start returns it
	set     []policy.EnvSet
	capture bool

	catcher *supervise.Catcher // of ForwardSignals before the start
	process *supervise.Process
	plan    *plan.Plan
	launch  *backend.Launch
	park    *park // the sandbox that the command enters; nil for one of its own
	run     *runlog.Run
	result  *Result
	// starting: the plan is made to be run. bus is the proxy of its session bus.
	starting bool
	// runs: Run was called, so nobody needs the process before it has ended.
	runs bool
	bus  *bus.Proxy
	// ahead is the process of the launch, made while the plan is; nil if there is none.
	ahead *sysprog.Ahead
	// net is the network that this process serves for the command, netRecord what
	// is on record of it; nil if there is none.
	net       *netservice.Service
	netRecord *netservice.Record
	published []plan.Port
	// asker asks about what is refused; nil if nobody is asked.
	asker *asking.Asker
}

// Command returns a command that runs under p. It works in the folder that p was made
// for with [policy.Workspace], or else in the working folder of this program. For
// another workspace, an audit log or many commands use [Open].
func Command(ctx context.Context, p policy.Policy, name string, arg ...string) *Cmd {
	s, err := Open(ctx, p, Deferred())
	c := &Cmd{Args: append([]string{name}, arg...), ctx: ctx, session: s, err: err}
	return c
}

// Command returns a command that runs under the session's policy.
func (s *Session) Command(ctx context.Context, name string, arg ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, arg...), ctx: ctx, session: s}
}

// SetEnv gives the command a variable, whatever the policy's rules for the
// caller's environment say.
func (c *Cmd) SetEnv(name, value string) {
	c.set = append(c.set, policy.EnvSet{Name: name, Value: value, Origin: policy.Origin{Layer: policy.LayerCommand, Source: "SetEnv"}})
}

// Run starts the command and waits for it. The error is nil if it ran and
// returned 0, an *ExitError if it ran and did not, and any other error if it
// did not run.
func (c *Cmd) Run() error {
	c.runs = true
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Capture runs the command and keeps its output, up to the policy's limit. The
// error is nil if the command ran, whatever it returned.
func (c *Cmd) Capture() (*Result, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("cloche: Capture: Stdout or Stderr is set already")
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr, c.capture = &stdout, &stderr, true
	err := c.Run()
	var exit *ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	c.result.Stdout, c.result.Stderr = stdout.Bytes(), stderr.Bytes()
	return c.result, nil
}

// Start starts the command.
func (c *Cmd) Start() error {
	switch {
	case c.err != nil:
		return c.err
	case c.process != nil:
		return errors.New("cloche: the command was started already")
	case len(c.Args) == 0 || c.Args[0] == "":
		return errNoCommand
	case c.session.isClosed():
		return ErrClosed
	}
	c.run = c.session.newRun(c)
	c.starting = true
	var err error
	distrusted := ""
	for range maxTries {
		err = c.tryStart()
		var setup *SetupError
		if errors.As(err, &setup) && setup.Backend != distrusted && c.session.distrusts(setup.Backend) {
			distrusted = setup.Backend
			c.ahead.Discard()
			c.ahead = nil
			c.session.warm.retire(c.park)
			continue // with the next backend that works
		}
		// A file that the plan is about changed: look again.
		var changed *supervise.ChangedError
		if !errors.As(err, &changed) || changed.Replaced() {
			break
		}
		c.session.warm.retire(c.park)
	}
	c.ahead.Discard() // of a launch that did not come about
	if err != nil {
		recordRefusal(c.run, err)
	} else if c.catcher != nil {
		c.catcher.Forward(c.process)
	}
	return err
}

func (c *Cmd) tryStart() (err error) {
	defer func() {
		if err != nil {
			c.endBus()
			c.leaveNetwork()
		}
	}()
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.session.startBus(c.ctx, c.bus, c.plan, c.launch.Backend); err != nil {
		return err
	}
	if err := c.takeNetwork(); err != nil {
		c.park.release()
		return err
	}
	first := !c.run.Started()
	if err := c.run.Start(c.plan, c.launch); err != nil {
		c.park.release()
		return err
	}
	if first && c.Prepared != nil {
		c.Prepared(c.plan, c.launch)
	}
	c.asker = c.session.askerFor(c.plan, c.run)
	c.netRecord = c.net.Join(c.run, asksHosts(c.asker))
	if c.process, err = c.launchProcess(); err == nil {
		c.bus.EndWith(c.process.Done())
		c.netRecord.Started(c.process)
	}
	return err
}

// launchProcess starts the process. In Run, it waits for its end, too, unless
// somebody needs the process before.
func (c *Cmd) launchProcess() (*supervise.Process, error) {
	spec := c.spec()
	c.ahead = nil // it is the launch's now
	if c.runs && c.bus == nil && c.netRecord == nil && c.catcher == nil && c.KillDelay == 0 && !c.plan.Command.Terminal {
		return supervise.Run(c.ctx, spec)
	}
	return supervise.Start(c.ctx, spec)
}

func (c *Cmd) spec() supervise.Spec {
	p := c.plan
	return supervise.Spec{
		Launch: c.launch, Ahead: c.ahead, Plan: p, Ask: asks(c.asker), Lock: c.session.lockFile(), Parked: c.park.sandbox(), Network: c.net.Maker(), Command: p.Command.Path, Timeout: p.Timeout(), KillDelay: c.KillDelay,
		Output: c.outputLimit(), Memory: p.Limit(plan.LimitMemory), Processes: p.Limit(plan.LimitProcesses),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.ExtraFiles, Terminal: p.Command.Terminal,
	}
}

// outputLimit is the limit on output. The default one is there to bound what
// Capture keeps; a stream that is passed on is bounded only if a policy says so.
func (c *Cmd) outputLimit() int64 {
	for _, l := range c.plan.Limits {
		if l.Name == plan.LimitOutput && (c.capture || l.Origin.Layer != policy.LayerBuiltin) {
			return l.Value
		}
	}
	return policy.Unlimited
}

// Wait waits for the command that Start started; see Run for the error.
func (c *Cmd) Wait() error {
	if c.process == nil {
		return errors.New("cloche: the command was not started")
	}
	if c.result != nil {
		return errors.New("cloche: Wait was called already")
	}
	outcome, err := c.process.Wait()
	c.endBus()
	c.leaveNetwork()
	if err != nil {
		recordRefusal(c.run, err)
		return err
	}
	c.result = newResult(outcome, c.launch, c.plan)
	c.session.tryDenied(c.result.Denied)
	c.result.add(c.netRecord.Summary(), c.asker.Notices())
	if err := c.run.End(c.result.outcome()); err != nil {
		return err
	}
	if !c.result.Success() {
		return &ExitError{c.result}
	}
	return nil
}

// Signal sends a signal to the command.
func (c *Cmd) Signal(sig os.Signal) error {
	if c.process == nil {
		return errors.New("cloche: the command was not started")
	}
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("cloche: %v is not a signal of this system", sig)
	}
	return c.process.Signal(number)
}

// ForwardSignals passes the signals that this process receives on to the
// command until stop is called. It is for programs that are a front end of one
// command. Called before Start, in Prepared for instance, it gets everything
// ready for that, and signals are passed on from the start; what comes before has
// the effect that it always has.
func (c *Cmd) ForwardSignals() (stop func()) {
	if c.process == nil {
		c.catcher = supervise.Catch()
		return c.catcher.Stop
	}
	return supervise.Forward(c.process)
}

// Result returns how the command went, after Wait; nil before.
func (c *Cmd) Result() *Result { return c.result }

// Plan returns the plan for the command as it stands now, without starting it.
func (c *Cmd) Plan() (*plan.Plan, error) {
	if c.err != nil {
		return nil, c.err
	}
	snap, err := c.session.snapshot(c.Env)
	if err != nil {
		return nil, err
	}
	return c.resolve(snap)
}

// Launch returns what would be started, without starting it. It is for people
// who want to look behind the curtain.
func (c *Cmd) Launch() (*backend.Launch, error) {
	if c.err != nil {
		return nil, c.err
	}
	if err := c.prepareOwn(); err != nil {
		return nil, err
	}
	return c.launch, nil
}

// Published returns the ports of the host that lead to servers of the command
// while it runs, with the one that was taken where the policy leaves the choice.
// It is empty before Start.
func (c *Cmd) Published() []plan.Port { return slices.Clone(c.published) }

// takeNetwork takes what the command's network needs of the host. A command in a
// parked sandbox has that sandbox's network.
func (c *Cmd) takeNetwork() (err error) {
	if c.park != nil {
		c.net = c.park.net
	} else if c.net, err = netservice.New(c.plan, c.launch); err != nil {
		return err
	}
	c.net.Notices(c.plan)
	c.published = c.net.Published()
	return nil
}

// leaveNetwork ends the record, and the network if it was the command's own.
func (c *Cmd) leaveNetwork() {
	if c.park == nil {
		c.net.Close()
	}
	c.net.Leave(c.netRecord)
	c.net = nil
}
