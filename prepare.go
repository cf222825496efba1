package cloche

import (
	"errors"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// prepare makes the plan and the launch, in the session's parked sandbox if it
// keeps one.
func (c *Cmd) prepare() error {
	c.park = nil
	if !c.session.opts.warm {
		return c.prepareOwn()
	}
	if why := c.session.cold(); why != "" {
		return c.prepareCold(why)
	}
	err := c.prepareWarm()
	var cold *coldError
	if errors.As(err, &cold) {
		return c.prepareCold(cold.why)
	}
	return err
}

// prepareOwn makes the plan and the launch of a sandbox of the command's own.
func (c *Cmd) prepareOwn() error {
	snap, err := c.session.snapshot(c.Env)
	if err != nil {
		return err
	}
	snap = c.session.beginFind(snap)
	chosen := c.session.choice(snap)
	c.begin(chosen.backend, snap)
	c.plan, err = c.resolve(snap)
	if err != nil {
		return err
	}
	if c.starting {
		if c.bus, err = c.session.reserveBus(c.plan, c.Env); err != nil {
			return err
		}
	}
	c.launch, err = c.session.compile(chosen, c.plan, snap)
	return err
}

// begin has the process made that the launch will need, if it is to be started and
// the backend knows what it needs: that takes as long as to make the plan.
func (c *Cmd) begin(b backend.Backend, snap *host.Snapshot) {
	beginner, ok := b.(backend.Beginner)
	if !ok || !c.starting || c.ahead != nil || !snap.Live() {
		return
	}
	pol := c.session.effective()
	c.ahead, _ = beginner.Begin(&pol, snap) // without it the launch makes its own
}

func (c *Cmd) resolve(snap *host.Snapshot) (*plan.Plan, error) {
	pol := c.session.effective()
	if len(c.set) > 0 {
		pol = pol.Clone()
		pol.Env.Set = append(pol.Env.Set, c.set...)
	}
	return c.session.resolve(pol, snap, resolve.Request{
		Name: c.Args[0], Args: c.Args, Dir: c.Dir, ExtraFiles: len(c.ExtraFiles),
		Terminal: supervise.Wants(c.TTY, c.Stdin, c.Stdout),
	})
}
