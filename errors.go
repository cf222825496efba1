package cloche

import (
	"errors"
	"fmt"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/engine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/policy"
)

// The errors of the packages behind this one. Each says what failed, on which object, by which
// rule, and what would fix it. Use errors.As to find them.
type (
	// A PolicyError is a rule that cannot be used on this machine.
	PolicyError = resolve.PolicyError
	// A CommandError says that the command was not found or is no program.
	CommandError = resolve.CommandError
	// An ExecError says that the command could not be executed inside.
	ExecError = supervise.ExecError
	// An EscapeError says that a path is outside the folder that it has to be in.
	EscapeError = safeopen.EscapeError
	// A GapError says that the backend cannot enforce the whole policy here, and
	// that the policy requires it.
	GapError = engine.GapError
	// An UnavailableError says that no backend could be used.
	UnavailableError = engine.UnavailableError
	// An UnconfinedError says that commands run without a sandbox, and why.
	UnconfinedError = engine.UnconfinedError
)

// ErrClosed is returned by a session that was closed.
var ErrClosed = engine.ErrClosed

// A Refusal says why a command did not run, in a form for programs.
type Refusal struct {
	// Kind is
	//   - "policy" if the policy has a mistake, or does not fit this machine,
	//   - "unavailable" if no backend could be used,
	//   - "gaps" if the policy is strict and the backend cannot enforce all of it,
	//   - "command" if the program is not there, or cannot be executed,
	//   - "setup" if the sandbox could not be made,
	//   - "error" for anything else.
	Kind string `json:"kind"`
	// Backend is the backend that was wanted, or the one that has the gaps.
	Backend string `json:"backend,omitempty"`
	// Cause is why no backend could be used, if the cause is a known one. Unavailable is the
	// probe of each backend.
	Cause       string                `json:"cause,omitempty"`
	Unavailable map[string]host.Probe `json:"unavailable,omitempty"`
	Gaps        []backend.Gap         `json:"gaps,omitempty"`
}

// RefusalOf classifies the error of a command that did not run.
func RefusalOf(err error) Refusal {
	var (
		unavailable *UnavailableError
		gaps        *GapError
		command     *CommandError
		exec        *ExecError
		setup       *supervise.SetupError
		rule        *PolicyError
		invalid     *policy.Error
	)
	switch {
	case errors.As(err, &unavailable):
		return Refusal{Kind: "unavailable", Backend: unavailable.Wanted, Cause: unavailable.Cause(), Unavailable: probesOf(unavailable.Err)}
	case errors.As(err, &gaps):
		return Refusal{Kind: "gaps", Backend: gaps.Backend, Gaps: gaps.Gaps}
	case errors.As(err, &invalid), errors.As(err, &rule):
		return Refusal{Kind: "policy"}
	case errors.As(err, &command), errors.As(err, &exec):
		return Refusal{Kind: "command"}
	case errors.As(err, &setup):
		return Refusal{Kind: "setup"}
	}
	return Refusal{Kind: "error"}
}

// probesOf returns the failed probe of each backend.
func probesOf(err error) map[string]host.Probe {
	probes := map[string]host.Probe{}
	var all *backend.NoBackendError
	var one *backend.UnavailableError
	if errors.As(err, &all) {
		for _, e := range all.Errs {
			if errors.As(e, &one) {
				probes[one.Backend] = one.Probe
			}
		}
	} else if errors.As(err, &one) {
		probes[one.Backend] = one.Probe
	}
	return probes
}

// An ExitError says that the command ran and did not succeed. It does not wrap the context's
// error: Canceled says whether the context ended the run, TimedOut and Exceeded whether a
// limit of the policy did.
type ExitError struct {
	*Result
}

// Error says how the command ended.
func (e *ExitError) Error() string {
	switch {
	case e.TimedOut:
		return "timed out after " + e.Duration.Round(10*time.Millisecond).String()
	case e.Exceeded != "":
		return "exceeded its limit of " + e.Exceeded
	case e.Canceled:
		return "canceled"
	case e.Signal != "":
		return "ended by " + e.Signal
	default:
		return fmt.Sprintf("exit status %d", e.ExitCode)
	}
}
