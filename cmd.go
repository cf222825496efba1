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
	"github.com/cloche-dev/cloche/internal/engine"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// TTY says when a command gets a terminal of its own.
type TTY = supervise.TTYMode

// TTYAuto gives a terminal if standard input and output are both terminals.
const (
	TTYNever  = supervise.TTYNever
	TTYAuto   = supervise.TTYAuto
	TTYAlways = supervise.TTYAlways
)

// A Cmd is a command that will run, or is running, under a policy. Its fields mean the same as
// those of [os/exec.Cmd]. It does not embed an exec.Cmd, because the methods of that would run
// the command without a sandbox.
type Cmd struct {
	// Args are the arguments; Args[0] is the name as given to Command.
	Args []string
	// Env replaces the caller's environment; nil is that of this process. The policy decides
	// which variables pass. To pass a variable that the policy removes, use SetEnv.
	Env []string
	// Dir is the working folder, a host path; empty is the workspace.
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// ExtraFiles become descriptor 3 and up inside. The command can use each of them, whatever
	// the policy says.
	ExtraFiles []*os.File
	// TTY says when the command gets a terminal; the zero value is never.
	TTY TTY
	// KillDelay is the time between SIGTERM and SIGKILL for a command that timed out or was
	// canceled. With 0 it is killed at once.
	KillDelay time.Duration
	// Prepared, if set, is called once when everything is ready and before the command runs. A
	// front end can print there what its user should know first.
	Prepared func(*plan.Plan, *backend.Launch)

	ctx     context.Context
	session *Session
	err     error // found by Command, returned by Start
	// extra is what the engine needs besides the fields above.
	extra   engine.Command
	running *engine.Running
	result  *Result
}

// Command returns a command that runs under p. It works in the folder that p was made for with
// [policy.Workspace], or else in the working folder of this program. Do not change the lists
// of p until the command has ended. For another workspace, an audit log or many commands use
// [Open].
func Command(ctx context.Context, p policy.Policy, name string, arg ...string) *Cmd {
	s, err := Open(ctx, p, WithDeferredPlan())
	return &Cmd{Args: append([]string{name}, arg...), ctx: ctx, session: s, err: err}
}

// Command returns a command that runs under the session's policy.
func (s *Session) Command(ctx context.Context, name string, arg ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, arg...), ctx: ctx, session: s}
}

// SetEnv gives the command a variable, whatever the policy's rules for the
// caller's environment say.
func (c *Cmd) SetEnv(name, value string) {
	c.extra.Set = append(c.extra.Set, policy.EnvSet{Name: name, Value: value, Origin: policy.Origin{Layer: policy.LayerCommand, Source: "SetEnv"}})
}

// Run starts the command and waits for it. The error is nil if it ran and
// returned 0, an *ExitError if it ran and did not, and any other error if it
// did not run. To send signals while the command runs, use Start and Wait.
func (c *Cmd) Run() error {
	c.extra.ToEnd = true
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
	c.Stdout, c.Stderr, c.extra.Captured = &stdout, &stderr, true
	err := c.Run()
	var exit *ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	c.result.Stdout, c.result.Stderr = stdout.Bytes(), stderr.Bytes()
	return c.result, nil
}

// Start starts the command.
func (c *Cmd) Start() (err error) {
	switch {
	case c.err != nil:
		return c.err
	case c.running != nil:
		return errors.New("cloche: the command was started already")
	case len(c.Args) == 0 || c.Args[0] == "":
		return errNoCommand
	case c.session.engine.Closed():
		return ErrClosed
	}
	in := c.command()
	in.Run = c.session.newRun(c.Args, c.Dir)
	if c.running, err = c.session.engine.Start(c.ctx, in); err != nil {
		recordRefusal(in.Run, err)
	}
	return err
}

// command returns the command in the engine's form.
func (c *Cmd) command() *engine.Command {
	e := &c.extra
	e.Args, e.Env, e.Dir, e.Stdin, e.Stdout, e.Stderr = c.Args, c.Env, c.Dir, c.Stdin, c.Stdout, c.Stderr
	e.ExtraFiles, e.TTY, e.KillDelay, e.Ready = c.ExtraFiles, c.TTY, c.KillDelay, c.Prepared
	return e
}

// Wait waits for the command that Start started; see Run for the error.
func (c *Cmd) Wait() error { return c.wait(true) }

// wait is Wait. The denials get options that would allow them only if tryFixes is set: trying
// options takes time and searches the workspace.
func (c *Cmd) wait(tryFixes bool) error {
	if c.running == nil {
		return errors.New("cloche: the command was not started")
	}
	if c.result != nil {
		return errors.New("cloche: Wait was called already")
	}
	outcome, err := c.running.Wait()
	if err != nil {
		recordRefusal(c.extra.Run, err)
		return err
	}
	c.result = newResult(outcome, c.running.Launch, c.running.Plan)
	if tryFixes {
		c.result.fixer = c.session.fixAll(c.result.Denied, c.running.Plan)
	} else {
		for i := range c.result.Denied {
			d := &c.result.Denied[i]
			d.Fix, d.Narrower = nil, nil
		}
	}
	c.result.add(c.running.Summary(), c.running.Decided())
	if err := c.extra.Run.End(c.result.outcome()); err != nil {
		return err
	}
	if !c.result.Success() {
		return &ExitError{c.result}
	}
	return nil
}

// Signal sends a signal to the command.
func (c *Cmd) Signal(sig os.Signal) error {
	if c.running == nil {
		return errors.New("cloche: the command was not started")
	}
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("cloche: %v is not a signal of this system", sig)
	}
	return c.running.Process.Signal(number)
}

// ForwardSignals passes the signals that this process receives on to the command until stop is
// called. It is for programs that are a front end of one command. If it is called before
// Start, for example in Prepared, signals are passed on as soon as the command starts; a
// signal that arrives earlier has its usual effect on this process.
func (c *Cmd) ForwardSignals() (stop func()) {
	if c.running == nil {
		c.extra.Catcher = supervise.Catch()
		return c.extra.Catcher.Stop
	}
	return supervise.Forward(c.running.Process)
}

// Result returns the command's result after Wait, and nil before.
func (c *Cmd) Result() *Result { return c.result }

// Plan returns the plan for the command in its current state, without starting it.
func (c *Cmd) Plan() (*plan.Plan, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.session.engine.Plan(c.command())
}

// Launch returns what Start would start, without starting it. It is for people who want to see
// how the sandbox is made.
func (c *Cmd) Launch() (*backend.Launch, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.session.engine.Launch(c.command())
}

// Published returns the published ports: the host's ports that lead to servers of the command
// while it runs. Where the policy leaves the choice of the host's port open, the port is the
// chosen one. It is empty before Start.
func (c *Cmd) Published() []plan.Port {
	if c.running == nil {
		return nil
	}
	return slices.Clone(c.running.Published)
}

// A HeldTerminal is the caller's terminal while the command cannot use it.
type HeldTerminal = supervise.Held

// PrintLine prints a line to the caller's terminal while the command runs. It prints nothing
// and returns false if the command has no terminal of its own, while it draws on the whole
// screen or reads single keys, and while another process group has the terminal.
func (c *Cmd) PrintLine(text string) bool {
	return c.running != nil && c.running.Process.PrintLine(text)
}

// HoldTerminal keeps the command from the caller's terminal until it is released, so that a
// question can be asked there: the command's output waits, and keys are not its input. It
// returns false if the command has not started, and while another process group has the
// terminal or it is held already. A command without a terminal of its own can only be held if
// its denials are asked about and its standard input is not the terminal.
func (c *Cmd) HoldTerminal() (*HeldTerminal, bool) {
	if c.running == nil {
		return nil, false
	}
	return c.running.Process.HoldTerminal()
}
