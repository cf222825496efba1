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

// A Command is what a caller wants to run. Fields that also exist in cloche.Cmd mean the same.
type Command struct {
	Args           []string
	Env            []string // nil is the caller's
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	ExtraFiles     []*os.File
	TTY            supervise.TTYMode
	KillDelay      time.Duration
	// Ready, unless nil, is called once when everything is ready and before the command runs.
	Ready func(*plan.Plan, *backend.Launch)
	// Set are variables that the command gets, whatever the policy says.
	Set []policy.EnvSet
	// Captured: the output is kept in memory, so that the default output limit applies.
	Captured bool
	// ToEnd: the caller does not need the process before it has ended.
	ToEnd bool
	// Catcher, unless nil, catches the signals to pass on. Ready may set it.
	Catcher *supervise.Catcher
	// Run is the command's record in the audit log.
	Run *runlog.Run
}

func (c *Command) request() resolve.Request {
	return resolve.Request{Name: c.Args[0], Args: c.Args, Dir: c.Dir, ExtraFiles: len(c.ExtraFiles),
		Terminal: supervise.Wants(c.TTY, c.Stdin, c.Stdout)}
}

// A Prepared is a command that is ready to be started.
type Prepared struct {
	Plan   *plan.Plan
	Launch *backend.Launch

	park *park // the sandbox that it enters; nil if it gets its own
	bus  *bus.Proxy
	// review is the review that the command's own sandbox shows; nil if there is none, or the sandbox is parked.
	review *heldReview
	// ahead is the process of the launch, made while the plan is made; nil if there is none.
	ahead *sysprog.Ahead
}

// parked returns the parked sandbox that the command enters, or nil.
func (p *Prepared) parked() *supervise.Parked {
	if p.park == nil {
		return nil
	}
	return p.park.sandbox
}

// cancel releases everything, for a command that will not be started.
func (p *Prepared) cancel() {
	p.parked().Release()
	p.endBus()
	p.endReview()
	p.ahead.Discard()
	p.ahead = nil
}

// Plan returns the plan for a command in its current state.
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
	if p, err = e.wouldReview(p, chosen, snap); err != nil {
		return nil, err
	}
	return e.compile(chosen, p, snap)
}

// wouldReview returns a plan with the layers that its review would have. They are not made.
func (e *Engine) wouldReview(p *plan.Plan, chosen Choice, snap *host.Snapshot) (*plan.Plan, error) {
	if !reviewsOn(p, chosen.Backend) {
		return p, nil
	}
	layers, err := e.reviewLayers(p, snap.Dirs.State, snap.Live())
	if err != nil {
		return nil, err
	}
	return p.WithReview(layers), nil
}

func (e *Engine) resolveCommand(c *Command, snap *host.Snapshot, r resolve.Request) (*plan.Plan, error) {
	pol := e.Effective()
	if len(c.Set) > 0 {
		pol = pol.Clone()
		pol.Env.Set = append(pol.Env.Set, c.Set...)
	}
	return e.Resolve(pol, snap, r)
}

// prepare prepares a command: in the warm sandbox, or in one of its own if the session has
// none. If a session cannot be warm, its first command gets a notice that says why.
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
		p.Plan = p.Plan.WithNotices(plan.Notice{Kind: plan.NoticeInfo, Text: "the session is not warm: " + cold.why})
	}
	return p, err
}

// prepareOwn prepares a command in a sandbox of its own.
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

// fill makes the plan, reserves the session bus and compiles the launch.
func (e *Engine) fill(p *Prepared, c *Command, chosen Choice, snap *host.Snapshot) (err error) {
	r := chosen.request(c.request())
	if chosen.Err == nil && chosen.Unconfined == nil {
		if r, err = e.withInspection(context.Background(), r, snap); err != nil {
			return err
		}
	}
	if p.Plan, err = e.resolveCommand(c, snap, r); err != nil {
		return err
	}
	if chosen.mounts() {
		if p.Plan, p.bus, err = e.reserveBus(p.Plan, c.Env); err != nil {
			return err
		}
	}
	if chosen.Err == nil {
		if p.Plan, p.review, err = e.beginReview(p.Plan, chosen.Backend, snap.Dirs.State); err != nil {
			return err
		}
	}
	if p.Launch, err = e.compile(chosen, p.Plan, snap); err != nil {
		return err
	}
	p.Plan = p.Plan.WithNotices(unasked(p.Plan, p.Launch)...)
	return nil
}

// A beginner is a backend whose launches start a process that does not depend on the plan.
// Starting it takes long enough to be worth doing while the plan is made. If the launch turns
// out to need another process, this one is discarded.
type beginner interface {
	Begin(*policy.Policy, *host.Snapshot) (*sysprog.Ahead, error)
}

// begin starts the process that the launch will need, if the backend is a beginner.
func (e *Engine) begin(b backend.Backend, snap *host.Snapshot) *sysprog.Ahead {
	first, ok := b.(beginner)
	if !ok || !snap.Live() {
		return nil
	}
	pol := e.Effective()
	ahead, _ := first.Begin(&pol, snap) // without it the launch starts its own
	return ahead
}
