package cloche

import (
	"slices"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// A Result is how a command went and what it was held to.
type Result struct {
	// ExitCode is the command's own, or 128 plus the number of the signal that
	// ended it.
	ExitCode int `json:"exit_code"`
	// Signal is the name of the signal that ended it, if one did.
	Signal string `json:"signal,omitempty"`
	// Stdout and Stderr are what Capture kept, also of a run that was ended.
	Stdout []byte `json:"-"`
	Stderr []byte `json:"-"`
	// TimedOut: the run was ended for its wall time.
	TimedOut bool `json:"timed_out,omitempty"`
	// Canceled: the run was ended because its context was.
	Canceled bool `json:"canceled,omitempty"`
	// Truncated: there was more output than the limit allows, and it was cut.
	Truncated bool `json:"truncated,omitempty"`
	// Exceeded names the limit for which the run was ended.
	Exceeded string        `json:"exceeded,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	// Backend enforced the policy. Confined is false where none did.
	Backend  string `json:"backend"`
	Confined bool   `json:"confined"`
	// Gaps are the parts of the policy that were not enforced.
	Gaps []backend.Gap `json:"gaps,omitempty"`
	// Denied is what was refused to the command while it ran, in the order in
	// which it first happened.
	Denied []plan.Denial `json:"denied,omitempty"`
	// DeniedMore is how many refusals there were beside those of Denied, which
	// lists a thousand different ones of files and as many of the network.
	DeniedMore int `json:"denied_more,omitempty"`
	// Connections are those that the command made or was refused, in the order in
	// which they ended: the first 10000. Only a network that cloche serves itself
	// (mode user, published and forwarded ports) has them on record. Those that are
	// open when the command ends are ended with it.
	Connections []plan.Connection `json:"connections,omitempty"`
	// Notices are what a person should know about how the policy was read.
	Notices []plan.Notice `json:"notices,omitempty"`

	// fixer finds what would allow denials that are told together.
	fixer judge.Fixer
}

// add puts what is on record of the network, and what a person decided, into the result.
func (r *Result) add(net netservice.Summary, decided []plan.Notice) {
	r.Connections = append(r.Connections, net.Connections...)
	r.Denied, r.DeniedMore = append(r.Denied, net.Denied...), r.DeniedMore+net.DeniedMore
	r.Notices = slices.Concat(r.Notices, net.Notices, decided)
}

// outcome is what the audit log has of it.
func (r *Result) outcome() runlog.Outcome {
	return runlog.Outcome{ExitCode: r.ExitCode, Signal: r.Signal, Exceeded: r.Exceeded, Duration: r.Duration,
		TimedOut: r.TimedOut, Canceled: r.Canceled, Truncated: r.Truncated, Denied: r.Denied, DeniedMore: r.DeniedMore}
}

// Success reports whether the command ran to its end and returned 0.
func (r *Result) Success() bool {
	return r.ExitCode == 0 && r.Signal == "" && !r.TimedOut && !r.Canceled && r.Exceeded == ""
}

func newResult(o supervise.Outcome, l *backend.Launch, p *plan.Plan) *Result {
	r := &Result{
		ExitCode: o.ExitCode, TimedOut: o.TimedOut, Canceled: o.Canceled, Truncated: o.Truncated, Exceeded: o.Exceeded,
		Duration: o.Duration, Backend: l.Backend, Confined: l.Confined, Gaps: l.Gaps, Denied: o.Denied, DeniedMore: o.DeniedMore, Notices: p.Notices,
	}
	if o.Signal != 0 {
		r.Signal = o.Signal.String()
	}
	return r
}
