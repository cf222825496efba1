package seatbelt

import (
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A trial is the result of a probe.
type trial struct {
	// code is the exit code of sandbox-exec, detail its error output.
	code   int
	detail string
	// inside: the command inside ran. wrote: it could write although the profile denies it.
	inside, wrote bool
}

// trialPlan is the plan of a probe: everything is readable, nothing is writable.
func trialPlan() *plan.Plan {
	return &plan.Plan{Paths: []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read}}}
}

// classify returns the outcome that a trial shows.
func classify(t trial) host.Probe {
	detail := strings.TrimSpace(t.detail)
	switch {
	case t.inside && !t.wrote:
		return host.Probe{Outcome: host.Yes}
	case t.inside:
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: "sandbox-exec ran a command that could write where the profile denies it"}
	case t.code == 71:
		return host.Probe{Outcome: host.No, Cause: cause.Nested, Reason: "this process is in a sandbox already, and macOS lets nobody enter a second one: " + detail,
			Fix: "run cloche outside of that sandbox, or rely on it with --backend none"}
	case t.code == 65:
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: "this macOS does not read the profile: " + detail, Fix: "report it with the output of cloche doctor --json"}
	}
	return host.Probe{Reason: "the probe ended in an unexpected way: " + detail}
}
