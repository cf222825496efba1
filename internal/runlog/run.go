// Package runlog writes the lines of one run to the audit log: its start, its connections, its
// denials, and its end.
package runlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The verdicts of events.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Decision returns the event for the answer to a request: the grant, or the error if there is
// none.
func Decision(r grant.Request, g *grant.Grant, err error) audit.Event {
	e := audit.Event{Kind: audit.Grant, UID: os.Getuid(), PID: os.Getpid(),
		Subject: r.Subject(), Access: string(r.Access), Verdict: Deny, Reason: r.Reason, Workspace: r.Workspace}
	switch {
	case g != nil:
		e.Subject, e.Access, e.Verdict, e.Rule = g.Subject(), string(g.Access), Allow, g.Origin().Source+" ("+string(g.Scope)+")"
	case err != nil:
		e.Error = err.Error()
	}
	return e
}

// A Run writes the lines of one run to the session's sink: one when it starts, so that a run
// whose end is never seen is still in the log, and one when it ends. A run that cannot be
// recorded does not start.
type Run struct {
	sink  audit.Sink
	event audit.Event
	// started: the start was recorded. A second try of the same run records no second start.
	started bool
	// net records the connections while the command runs.
	net connections
}

// New returns a new run. The event contains what is known before there is a plan.
func New(sink audit.Sink, e audit.Event) *Run {
	e.Run, e.PID, e.UID = rand.Text()[:12], os.Getpid(), os.Getuid()
	return &Run{sink: sink, event: e}
}

// ID returns the id that all lines of the run have.
func (r *Run) ID() string { return r.event.Run }

// Argv returns the command line.
func (r *Run) Argv() []string { return r.event.Argv }

// Started reports whether the start was recorded.
func (r *Run) Started() bool { return r.started }

// describe sets the fields that are known once there is a launch.
func (r *Run) describe(p *plan.Plan, l *backend.Launch) {
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

// Start records the start, once.
func (r *Run) Start(p *plan.Plan, l *backend.Launch) error {
	if r.started {
		return nil
	}
	r.started = true
	r.describe(p, l)
	return r.record(audit.Start)
}

// Wrapped records a command that the caller runs itself.
func (r *Run) Wrapped(p *plan.Plan, l *backend.Launch) error {
	r.event.Reason = "wrapped: the caller runs it"
	return r.Start(p, l)
}

// An Outcome is how a command ended.
type Outcome struct {
	ExitCode                      int
	Signal, Exceeded              string
	Duration                      time.Duration
	TimedOut, Canceled, Truncated bool
	Denied                        []plan.Denial
	DeniedMore                    int
}

// End records the end.
func (r *Run) End(o Outcome) error {
	netErr := r.endConnections()
	e := &r.event
	e.ExitCode, e.Signal, e.DurationMS = &o.ExitCode, o.Signal, o.Duration.Milliseconds()
	e.TimedOut, e.Canceled, e.Truncated, e.Exceeded = o.TimedOut, o.Canceled, o.Truncated, o.Exceeded
	e.Denied, e.DeniedMore = deniedEvents(o.Denied, o.DeniedMore)
	return errors.Join(r.record(audit.End), netErr)
}

// WrappedRefusals records the denials of a wrapped command after its last process has ended.
// How the command ended is only known to its caller. It only reads fields of the run's own
// event that are set at the start, because the network may write at the same time.
func (r *Run) WrappedRefusals(denied []plan.Denial, more int) {
	if len(denied) == 0 && more == 0 {
		return
	}
	e := r.networkEvent()
	e.Kind, e.Argv, e.Reason = audit.End, r.event.Argv, "wrapped: the caller has its status"
	e.Denied, e.DeniedMore = deniedEvents(denied, more)
	_ = r.sink.Record(e) // nobody is left to report an error to
}

// maxDenials limits how much a command can make the log grow.
const maxDenials = 100

// deniedEvents returns the denials for the log, and the number of further ones.
func deniedEvents(denied []plan.Denial, others int) (list []audit.Denial, more int) {
	more = others
	for i := range denied {
		d := &denied[i]
		if i >= maxDenials {
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

// Refused records that the command did not run: the error, its kind and the cause that a probe
// found. It returns no error of the log, which would only hide the first error from the
// caller.
func (r *Run) Refused(err error, kind, cause string) {
	r.event.Error, r.event.Refusal, r.event.Cause = err.Error(), kind, cause
	event := audit.Refused
	if r.started {
		event = audit.End
	}
	_ = r.record(event)
}

func (r *Run) record(kind string) error {
	r.event.Kind = kind
	if err := r.sink.Record(r.event); err != nil {
		return fmt.Errorf("cloche: the audit log cannot be written: %w", err)
	}
	return nil
}

// socketNames returns the granted sockets by their host paths, for the log.
func socketNames(p *plan.Plan) (names []string) {
	for _, s := range p.Sockets {
		names = append(names, s.Source)
	}
	if p.Datagrams != nil {
		names = append(names, policy.Datagrams)
	}
	return names
}

// busRules returns what the session bus allows, for the log.
func busRules(p *plan.Plan) []string {
	if p.Bus == nil {
		return nil
	}
	rules := []string{"enabled"}
	for _, r := range p.Bus.Rules {
		rules = append(rules, string(r.Access)+" "+r.String())
	}
	return rules
}
