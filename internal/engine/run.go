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

// maxTries is how often a plan is made again because one of its files changed before the
// start.
const maxTries = 4

// A Running is a started command.
type Running struct {
	*Prepared
	Process *supervise.Process
	// Published are the published ports: the host's ports that lead to servers of the command.
	Published []plan.Port

	// net serves the command's network, and record is the record of it. They are nil if cloche
	// serves no network.
	net    *netservice.Service
	record *netservice.Record
	// asker asks a person about denials; nil if nobody is asked.
	asker *asking.Asker
}

// Start starts a command. It tries again if one of the plan's files has changed, and with the
// next backend if the first one turns out not to work. The caller records an error in the
// audit log.
func (e *Engine) Start(ctx context.Context, c *Command) (r *Running, err error) {
	distrusted := ""
	for range maxTries {
		r, err = e.tryStart(ctx, c)
		var setup *supervise.SetupError
		if errors.Is(err, errReviewRefused) || r != nil && e.noteRefused(err, r.Plan) {
			continue
		}
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
		return nil, e.changedInReview(err)
	}
	if c.Catcher != nil {
		c.Catcher.Forward(r.Process)
	}
	return r, nil
}

// mayPass reports whether the error is that one of the plan's files changed, so that another
// try may succeed.
func mayPass(err error) bool {
	var changed *supervise.ChangedError
	return errors.As(err, &changed) && !changed.Replaced()
}

// tryStart starts a command once. If the start fails, it returns the Running together with the
// error.
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
	r.ahead = nil // the launch owns it now
	if r.Process, err = supervise.Start(ctx, spec); err != nil {
		r.endBus()
		r.endReview()
		r.leaveNetwork()
		return r, err
	}
	r.bus.EndWith(r.Process.Done())
	r.record.Started(r.Process)
	return r, nil
}

// ready sets up what a prepared command needs besides its sandbox.
func (e *Engine) ready(ctx context.Context, r *Running, c *Command) (err error) {
	if err := e.startBus(ctx, r.bus, r.Plan); err != nil {
		return err
	}
	if r.park != nil {
		r.net = r.park.net
	} else if r.net, err = netservice.New(r.Plan, r.Launch, e.inspector(r.Plan)); err != nil {
		return err
	}
	r.Plan = r.Plan.WithNotices(r.net.Notices(r.Plan)...)
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

// outputLimit returns the limit on output. The default limit only applies to captured output,
// which is kept in memory. Output that is passed on is limited only if a policy says so.
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
	r.endReview()
	r.leaveNetwork()
	finish(outcome.Denied, r.Plan)
	return outcome, err
}

// Summary returns the record of the network, after Wait.
func (r *Running) Summary() netservice.Summary {
	s := r.record.Summary()
	redactAll(s.Denied)
	return s
}

// Decided returns notices about the decisions that were made while the command waited.
func (r *Running) Decided() []plan.Notice { return r.asker.Notices() }

// DeniedSoFar returns the denials so far.
func (r *Running) DeniedSoFar() []plan.Denial {
	list := append(r.Process.Denied(), r.record.DeniedSoFar()...)
	finish(list, r.Plan)
	return list
}

// leaveNetwork ends the record, and closes the network if only this command used it.
func (r *Running) leaveNetwork() {
	if r.park == nil {
		r.net.Close()
	}
	r.net.Leave(r.record)
	r.net = nil
}

// finish adds to each denial of a file the options that would allow it, which name host paths.
// It removes what looks like a secret from command lines, as the audit log does.
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

// askerFor returns the asker for the denials of a run, or nil if nobody is asked.
func (e *Engine) askerFor(p *plan.Plan, run *runlog.Run) *asking.Asker {
	if e.config.Asker == nil {
		return nil
	}
	return e.config.Asker(p, run)
}

// asks returns the function that the supervisor calls about a denied file, or nil.
func asks(a *asking.Asker) supervise.Ask {
	if a == nil {
		return nil
	}
	return a.Ask
}

// asksHosts returns the asker for a network, or nil.
func asksHosts(a *asking.Asker) netservice.Asker {
	if a == nil {
		return nil
	}
	return a
}
