package cloche

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// An auditRun writes the lines of one run to the session's sink: one when it
// starts, so that a run whose end is never seen leaves its trace, and one when
// it ends. A run that cannot be recorded does not happen.
type auditRun struct {
	sink  audit.Sink
	event audit.Event
	// started: the start was recorded; a second try of the same run is not.
	started bool
	// net has the connections, which are recorded while the command runs.
	net auditNet
}

func (s *Session) newRun(c *Cmd) *auditRun {
	e := audit.Event{
		Run: rand.Text()[:12], Version: s.opts.version, PID: os.Getpid(), UID: os.Getuid(),
		Argv: c.Args, Dir: c.Dir, Workspace: s.opts.workspace, Network: s.policy.Network.Mode.String(),
	}
	for _, f := range s.opts.policyFiles {
		e.Policy = append(e.Policy, audit.PolicyFile{Path: f.Path, SHA256: f.SHA256, Trusted: f.Trusted})
	}
	return &auditRun{sink: s.opts.sink, event: e}
}

// describe fills in what is known once there is a launch.
func (r *auditRun) describe(p *plan.Plan, l *backend.Launch) {
	e := &r.event
	e.Dir, e.Workspace, e.Network = p.Command.Dir, p.Workspace, p.Network.Mode.String()
	e.Backend, e.Confined, e.Layer = l.Backend, l.Confined, l.Backend
	e.Gaps, e.Env, e.Notices = nil, nil, nil
	e.Sockets, e.Bus = socketNames(p), busRules(p)
	for _, g := range l.Gaps {
		e.Gaps = append(e.Gaps, audit.Gap{Rule: g.Rule, Subject: g.Subject, Reason: g.Reason})
	}
	for _, v := range p.Env {
		e.Env = append(e.Env, v.Name)
	}
	for _, n := range p.Notices {
		if n.Kind != plan.NoticeSkipped {
			e.Notices = append(e.Notices, n.Text)
		}
	}
}

func (r *auditRun) start(p *plan.Plan, l *backend.Launch) error {
	if r.started {
		return nil
	}
	r.started = true
	r.describe(p, l)
	return r.record(audit.Start)
}

// wrapped records a command that the caller runs itself.
func (r *auditRun) wrapped(p *plan.Plan, l *backend.Launch) error {
	r.event.Reason = "wrapped: the caller runs it"
	return r.start(p, l)
}

func (r *auditRun) end(result *Result) error {
	netErr := r.endConnections()
	e := &r.event
	e.ExitCode, e.Signal, e.DurationMS = &result.ExitCode, result.Signal, result.Duration.Milliseconds()
	e.TimedOut, e.Canceled, e.Truncated, e.Exceeded = result.TimedOut, result.Canceled, result.Truncated, result.Exceeded
	e.Denied, e.DeniedMore = auditDenials(result)
	return errors.Join(r.record(audit.End), netErr)
}

// wrappedRefusals records what was refused to a wrapped command, once its last
// process is gone: how it ended is known to its caller alone. Of the run's own event
// only what was known at the start is read; its network may write meanwhile.
func (r *auditRun) wrappedRefusals(denied []Denial, more int) {
	if len(denied) == 0 && more == 0 {
		return
	}
	e := r.networkEvent()
	e.Kind, e.Argv, e.Reason = audit.End, r.event.Argv, "wrapped: the caller has its status"
	e.Denied, e.DeniedMore = auditDenials(&Result{Denied: denied, DeniedMore: more})
	_ = r.sink.Record(e) // nobody is left to be told
}

// maxAuditedDenials bounds what a command can make the log grow by.
const maxAuditedDenials = 100

// auditDenials are those that the log has, and how many more there were.
func auditDenials(result *Result) (list []audit.Denial, more int) {
	more = result.DeniedMore
	for i := range result.Denied {
		d := &result.Denied[i]
		if i >= maxAuditedDenials {
			more += d.Count
			continue
		}
		list = append(list, audit.Denial{
			Op: string(d.Op), Path: d.Path, Host: d.Host, Port: d.Port, Protocol: d.Protocol, Method: d.Method,
			PID: d.Pid, Program: d.Program, Argv: d.Argv, Rule: d.Rule, Subject: d.Subject, Origin: d.Origin.String(), Count: d.Count, Time: d.Time,
		})
	}
	return list, more
}

// refused records that the command did not run. The error that it did not run
// for is what the caller needs; one of the log would only hide it.
func (r *auditRun) refused(err error) {
	why := RefusalOf(err)
	r.event.Error, r.event.Refusal, r.event.Cause = err.Error(), string(why.Kind), string(why.Cause)
	kind := audit.Refused
	if r.started {
		kind = audit.End
	}
	_ = r.record(kind)
}

func (r *auditRun) record(k audit.Kind) error {
	r.event.Kind = k
	if err := r.sink.Record(r.event); err != nil {
		return fmt.Errorf("cloche: the audit log cannot be written: %w", err)
	}
	return nil
}
