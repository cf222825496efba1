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

// A Result is how a command ended, and how it was confined.
type Result struct {
	// ExitCode is the command's exit code, or 128 plus the number of the signal that ended it.
	ExitCode int `json:"exit_code"`
	// Signal is the name of the signal that ended it, if one did.
	Signal string `json:"signal,omitempty"`
	// Stdout and Stderr are what Capture kept, also if the run was ended early.
	Stdout []byte `json:"-"`
	Stderr []byte `json:"-"`
	// TimedOut: the run exceeded its time limit and was ended.
	TimedOut bool `json:"timed_out,omitempty"`
	// Canceled: the run was ended because its context was.
	Canceled bool `json:"canceled,omitempty"`
	// Truncated: the output exceeded its limit and was cut.
	Truncated bool `json:"truncated,omitempty"`
	// Exceeded names the limit because of which the run was ended.
	Exceeded string        `json:"exceeded,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	// Backend enforced the policy. Confined is false where none did.
	Backend  string `json:"backend"`
	Confined bool   `json:"confined"`
	// Gaps are the parts of the policy that were not enforced.
	Gaps []backend.Gap `json:"gaps,omitempty"`
	// Denied are the operations that were denied while the command ran, in the order in which
	// each first happened.
	Denied []plan.Denial `json:"denied,omitempty"`
	// DeniedMore counts the denials not listed in Denied, which lists at most a thousand
	// different ones for files and a thousand for the network.
	DeniedMore int `json:"denied_more,omitempty"`
	// Connections are the connections that the command made or was denied, in the order in
	// which they ended: the first 10000. Only a network that cloche serves itself (mode user,
	// published and forwarded ports) records them. Connections that are open when the command
	// ends are ended with it.
	Connections []plan.Connection `json:"connections,omitempty"`
	// Notices are what a person should know about the policy, the network and the grants of
	// this run.
	Notices []plan.Notice `json:"notices,omitempty"`

	// fixer finds options that allow several denials at once.
	fixer judge.Fixer
}

// add puts the network's record and the decisions of a person into the result.
func (r *Result) add(net netservice.Summary, decided []plan.Notice) {
	r.Connections = append(r.Connections, net.Connections...)
	r.Denied, r.DeniedMore = append(r.Denied, net.Denied...), r.DeniedMore+net.DeniedMore
	r.Notices = slices.Concat(r.Notices, net.Notices, decided)
}

// outcome returns what the audit log records about the result.
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
