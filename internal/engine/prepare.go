package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Command is what a caller wants to run. The fields that package cloche has, too, mean
// the same there.
type Command struct {
	Args           []string
	Env            []string // nil is the caller's
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	ExtraFiles     []*os.File
	TTY            supervise.TTYMode
	KillDelay      time.Duration
	// Ready, unless nil, is called once when everything is ready and nothing runs yet.
	Ready func(*plan.Plan, *backend.Launch)
	// Set are variables that it has, whatever the policy says.
	Set []policy.EnvSet
	// Captured: the output is kept, so that its limit holds.
	Captured bool
	// ToEnd: nobody needs the process before it has ended.
	ToEnd bool
	// Catcher, unless nil, catches the signals that are to be passed on. Ready may set it.
	Catcher *supervise.Catcher
	// Run is its record in the audit log.
	Run *runlog.Run
}

func (c *Command) request() resolve.Request {
	return resolve.Request{Name: c.Args[0], Args: c.Args, Dir: c.Dir, ExtraFiles: len(c.ExtraFiles),
		Terminal: supervise.Wants(c.TTY, c.Stdin, c.Stdout)}
}

// A Prepared is a command that can be started.
type Prepared struct {
	Plan   *plan.Plan
	Launch *backend.Launch

	park *park // the sandbox that it enters; nil if it gets its own
	bus  *bus.Proxy
	// ahead is the process of the launch, made while the plan is; nil if there is none.
	ahead *sysprog.Ahead
}

// parked is the sandbox if it was made before, or nil.
func (p *Prepared) parked() *supervise.Parked {
	if p.park == nil {
		return nil
	}
	return p.park.sandbox
}

// cancel lets go of what was prepared, if it is not going to be started.
func (p *Prepared) cancel() {
	p.parked().Release()
	p.endBus()
	p.ahead.Discard()
	p.ahead = nil
}

// Plan returns the plan for a command as it stands now.
func (e *Engine) Plan(c *Command) (*plan.Plan, error) {
	snap, err := e.Snapshot(c.Env)
	if err != nil {
		return nil, err
	}
	return e.resolveCommand(c, snap, c.request())
}

// Launch returns what would be started for a command in a sandbox of its own.
func (e *Engine) Launch(c *Command) (*backend.Launch, error) {
	snap, err := e.Snapshot(c.Env)
	if err != nil {
		return nil, err
	}
	snap = e.beginFind(snap)
	chosen := e.Choose(snap)
	p, err := e.resolveCommand(c, snap, chosen.request(c.request()))
	if err != nil {
		return nil, err
	}
	return e.compile(chosen, p, snap)
}

func (e *Engine) resolveCommand(c *Command, snap *host.Snapshot, r resolve.Request) (*plan.Plan, error) {
	pol := e.Effective()
	if len(c.Set) > 0 {
		pol = pol.Clone()
		pol.Env.Set = append(pol.Env.Set, c.Set...)
	}
	return e.Resolve(pol, snap, r)
}

// prepare makes a command ready for being started: in the warm sandbox, or in one of its
// own if the session has none. A session that cannot be warm says once why.
func (e *Engine) prepare(ctx context.Context, c *Command) (*Prepared, error) {
	if !e.config.Warm {
		return e.prepareOwn(c)
	}
	p, err := e.warm.prepare(ctx, c)
	var cold *coldError
	if !errors.As(err, &cold) {
		return p, err
	}
	p, err = e.prepareOwn(c)
	if err == nil && cold.told.CompareAndSwap(false, true) {
		p.Plan.Notices = append(p.Plan.Notices, plan.Notice{Kind: plan.NoticeInfo, Text: "the session is not warm: " + cold.why})
	}
	return p, err
}

// prepareOwn prepares a sandbox of the command's own.
func (e *Engine) prepareOwn(c *Command) (*Prepared, error) {
	snap, err := e.Snapshot(c.Env)
	if err != nil {
		return nil, err
	}
	snap = e.beginFind(snap)
	chosen := e.Choose(snap)
	p := &Prepared{ahead: e.begin(chosen.Backend, snap)}
	if err := e.fill(p, c, chosen, snap); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// fill makes the plan and the launch.
func (e *Engine) fill(p *Prepared, c *Command, chosen Choice, snap *host.Snapshot) (err error) {
	if p.Plan, err = e.resolveCommand(c, snap, chosen.request(c.request())); err != nil {
		return err
	}
	if chosen.mounts() {
		if p.bus, err = e.reserveBus(p.Plan, c.Env); err != nil {
			return err
		}
	}
	p.Launch, err = e.compile(chosen, p.Plan, snap)
	return err
}

// A beginner is a backend whose launches begin by making a process that does not depend
// on the plan. That takes long enough to be worth doing while the plan is made. If the
// launch turns out to need another process, this one is discarded.
type beginner interface {
	Begin(*policy.Policy, *host.Snapshot) (*sysprog.Ahead, error)
}

// begin has the process made that the launch will need, if the backend knows what it
// needs: that takes as long as to make the plan.
func (e *Engine) begin(b backend.Backend, snap *host.Snapshot) *sysprog.Ahead {
	first, ok := b.(beginner)
	if !ok || !snap.Live() {
		return nil
	}
	pol := e.Effective()
	ahead, _ := first.Begin(&pol, snap) // without it the launch makes its own
	return ahead
}
