package engine

import (
	"context"
	"errors"

	"github.com/cloche-dev/cloche/internal/asking"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/redact"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// maxTries is how often a plan is made again because a file that it is about
// changed before the start.
const maxTries = 4

// A Running is a command that was started.
type Running struct {
	*Prepared
	Process *supervise.Process
	// Published are the ports of the host that lead to servers of the command.
	Published []plan.Port

	// net serves the command's network, and record is what is on record of it; nil if
	// there is none.
	net    *netservice.Service
	record *netservice.Record
	// asker asks about what is refused; nil if nobody is asked.
	asker *asking.Asker
}

// Start starts a command: again, if a file that the plan is about changes, and with the
// next backend, if the first one turns out not to work. What is refused is for the caller
// to record.
func (e *Engine) Start(ctx context.Context, c *Command) (r *Running, err error) {
	distrusted := ""
	for range maxTries {
		r, err = e.tryStart(ctx, c)
		var setup *supervise.SetupError
		if errors.As(err, &setup) && setup.Backend != distrusted && e.distrusts(setup.Backend) {
			distrusted = setup.Backend
		} else if !mayPass(err) {
			break
		}
		if r != nil {
			e.warm.retire(r.park)
		}
	}
	if err != nil {
		return nil, err
	}
	if c.Catcher != nil {
		c.Catcher.Forward(r.Process)
	}
	return r, nil
}

// mayPass reports whether a file that the plan is about changed, so that it is worth
// looking again.
func mayPass(err error) bool {
	var changed *supervise.ChangedError
	return errors.As(err, &changed) && !changed.Replaced()
}

// tryStart starts a command once. What failed to start comes back with the error.
func (e *Engine) tryStart(ctx context.Context, c *Command) (*Running, error) {
	p, err := e.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &Running{Prepared: p}
	if err := e.ready(ctx, r, c); err != nil {
		r.leaveNetwork()
		p.cancel()
		return r, err
	}
	spec := e.spec(r, c)
	r.ahead = nil // it is the launch's now
	if r.Process, err = supervise.Start(ctx, spec); err != nil {
		r.endBus()
		r.leaveNetwork()
		return r, err
	}
	r.bus.EndWith(r.Process.Done())
	r.record.Started(r.Process)
	return r, nil
}

// ready gets what a prepared command needs beside its sandbox.
func (e *Engine) ready(ctx context.Context, r *Running, c *Command) (err error) {
	if err := e.startBus(ctx, r.bus, r.Plan); err != nil {
		return err
	}
	if r.park != nil {
		r.net = r.park.net
	} else if r.net, err = netservice.New(r.Plan, r.Launch); err != nil {
		return err
	}
	r.net.Notices(r.Plan)
	r.Published = r.net.Published()
	first := !c.Run.Started()
	if err := c.Run.Start(r.Plan, r.Launch); err != nil {
		return err
	}
	if first && c.Ready != nil {
		c.Ready(r.Plan, r.Launch)
	}
	r.asker = e.askerFor(r.Plan, c.Run)
	r.record = r.net.Join(c.Run, asksHosts(r.asker))
	return nil
}

func (e *Engine) spec(r *Running, c *Command) supervise.Spec {
	p := r.Plan
	return supervise.Spec{
		ToEnd:  c.ToEnd && r.bus == nil && r.record == nil && r.asker == nil && c.Catcher == nil && c.KillDelay == 0 && !p.Command.Terminal,
		Launch: r.Launch, Ahead: r.ahead, Plan: p, Ask: asks(r.asker), Lock: e.lockFile(), Parked: r.parked(), Network: r.net.Maker(), Command: p.Command.Path, Timeout: p.Timeout(), KillDelay: c.KillDelay,
		Output: c.outputLimit(p), Memory: p.Limit(plan.LimitMemory), Processes: p.Limit(plan.LimitProcesses),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.ExtraFiles, Terminal: p.Command.Terminal,
	}
}

// outputLimit is the limit on output. The default one is there to bound what is
// captured; a stream that is passed on is bounded only if a policy says so.
func (c *Command) outputLimit(p *plan.Plan) int64 {
	for _, l := range p.Limits {
		if l.Name == plan.LimitOutput && (c.Captured || l.Origin.Layer != policy.LayerBuiltin) {
			return l.Value
		}
	}
	return policy.Unlimited
}

// Wait waits for the command.
func (r *Running) Wait() (supervise.Outcome, error) {
	outcome, err := r.Process.Wait()
	r.endBus()
	r.leaveNetwork()
	finish(outcome.Denied, r.Plan)
	return outcome, err
}

// Summary is what is on record of the network, after Wait.
func (r *Running) Summary() netservice.Summary {
	s := r.record.Summary()
	redactAll(s.Denied)
	return s
}

// Decided are notices about what was decided while the command waited.
func (r *Running) Decided() []plan.Notice { return r.asker.Notices() }

// DeniedSoFar is what has been refused to the command.
func (r *Running) DeniedSoFar() []plan.Denial {
	list := append(r.Process.Denied(), r.record.DeniedSoFar()...)
	finish(list, r.Plan)
	return list
}

// leaveNetwork ends the record, and the network if it was the command's own.
func (r *Running) leaveNetwork() {
	if r.park == nil {
		r.net.Close()
	}
	r.net.Leave(r.record)
	r.net = nil
}

// finish adds to denials of files what would allow them: options name the host's paths. What
// looks like a secret is taken out of command lines, as the log does.
func finish(list []plan.Denial, p *plan.Plan) {
	for i := range list {
		judge.Fixer{Plan: p}.Fix(&list[i].Decision)
	}
	redactAll(list)
}

func redactAll(list []plan.Denial) {
	for i := range list {
		list[i].Argv = redact.Argv(list[i].Argv)
	}
}

// askerFor is who asks about what is refused to a run, nil if nobody is asked.
func (e *Engine) askerFor(p *plan.Plan, run *runlog.Run) *asking.Asker {
	if e.config.Asker == nil {
		return nil
	}
	return e.config.Asker(p, run)
}

// asks is what the supervisor asks.
func asks(a *asking.Asker) supervise.Ask {
	if a == nil {
		return nil
	}
	return a.Ask
}

// asksHosts is the same for a network.
func asksHosts(a *asking.Asker) netservice.Asker {
	if a == nil {
		return nil
	}
	return a
}
