package cloche

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/policy"
)

// The errors of the packages behind this one. Each says what failed, on which
// object, by which rule, and what would fix it; errors.As finds them.
type (
	// A PolicyError is a rule that cannot be used on this machine.
	PolicyError = resolve.PolicyError
	// A CommandError says that the command was not found or is no program.
	CommandError = resolve.CommandError
	// A SetupError says that the backend could not make the sandbox.
	SetupError = supervise.SetupError
	// An ExecError says that the command could not be executed inside.
	ExecError = supervise.ExecError
	// An EscapeError says that a path leads out of the folder it belongs to.
	EscapeError = safeopen.EscapeError
)

// ErrClosed is returned by a session that was closed.
var ErrClosed = errors.New("cloche: the session is closed")

// ErrWrapped is returned for a command that was wrapped already.
var ErrWrapped = errors.New("cloche: the command is wrapped already")

// A GapError says that the backend cannot enforce the whole policy here, and
// that the policy requires it.
type GapError struct {
	Backend string
	Gaps    []backend.Gap
}

// Error names every gap. Several are named without their reasons, which would fill a
// screen: cloche explain and Gaps have them.
func (e *GapError) Error() string {
	const form = "backend %s cannot enforce the whole policy, and it is strict: %s (%sto run anyway: --best-effort)"
	if len(e.Gaps) == 1 {
		return fmt.Sprintf(form, e.Backend, e.Gaps[0], "")
	}
	var rules, fixes []string
	for _, g := range e.Gaps {
		rules = append(rules, strings.TrimSpace(g.Rule+" "+g.Subject))
		if g.Fix != "" && !slices.Contains(fixes, g.Fix) {
			fixes = append(fixes, g.Fix)
		}
	}
	how := "for the reasons: cloche explain; "
	if len(fixes) > 0 {
		how += "to fix: " + strings.Join(fixes, "; ") + "; "
	}
	return fmt.Sprintf(form, e.Backend, strings.Join(rules, "; "), how)
}

// An UnavailableError says that no backend could be used.
type UnavailableError struct {
	// Wanted is the backend that the policy names, "auto" or "required".
	Wanted string
	Err    error
}

// Error names what was wanted and why it cannot be had.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the reasons.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Cause says which of the known causes it was (a missing binary, user
// namespaces refused, a mount refused); the first that is known.
func (e *UnavailableError) Cause() host.Cause {
	return firstCause(e.Err)
}

func firstCause(err error) host.Cause {
	var one *backend.UnavailableError
	if errors.As(err, &one) {
		return one.Probe.Cause
	}
	var none *backend.NoBackendError
	if errors.As(err, &none) && none.Unsupported() {
		return host.CauseUnsupportedOS
	}
	return host.CauseNone
}

// A RefusalKind classifies the error of a command that did not run.
type RefusalKind string

// The kinds of refusal.
const (
	RefusedPolicy      RefusalKind = "policy"      // the policy has a mistake, or does not fit this machine
	RefusedUnavailable RefusalKind = "unavailable" // no backend could be used
	RefusedGaps        RefusalKind = "gaps"        // the policy is strict, and the backend cannot enforce all of it
	RefusedCommand     RefusalKind = "command"     // the program is not there, or cannot be executed
	RefusedSetup       RefusalKind = "setup"       // the sandbox could not be made
	RefusedOther       RefusalKind = "error"       // anything else
)

// A Refusal is why a command did not run, for programs.
type Refusal struct {
	Kind RefusalKind `json:"kind"`
	// Backend is the one that was wanted, or that has the gaps.
	Backend string `json:"backend,omitempty"`
	// Cause is why no backend could be used, if it is a known one; Unavailable has what
	// each backend says.
	Cause       host.Cause            `json:"cause,omitempty"`
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
		setup       *SetupError
		rule        *PolicyError
		syntax      *policy.SyntaxError
		invalid     *policy.InvalidError
	)
	switch {
	case errors.As(err, &unavailable):
		return Refusal{Kind: RefusedUnavailable, Backend: unavailable.Wanted, Cause: unavailable.Cause(), Unavailable: probesOf(unavailable.Err)}
	case errors.As(err, &gaps):
		return Refusal{Kind: RefusedGaps, Backend: gaps.Backend, Gaps: gaps.Gaps}
	case errors.As(err, &syntax), errors.As(err, &invalid), errors.As(err, &rule):
		return Refusal{Kind: RefusedPolicy}
	case errors.As(err, &command), errors.As(err, &exec):
		return Refusal{Kind: RefusedCommand}
	case errors.As(err, &setup):
		return Refusal{Kind: RefusedSetup}
	}
	return Refusal{Kind: RefusedOther}
}

// probesOf is what each backend says of itself.
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

// unconfinedText begins the notice of a command that runs without a sandbox.
const unconfinedText = "the command runs without a sandbox: "

// An UnconfinedError says that commands run without a sandbox, and why.
type UnconfinedError struct {
	Reason string
	// Origin is the rule or the switch that asked for it, if one did.
	Origin policy.Origin
}

// Error gives the reason and where it comes from.
func (e *UnconfinedError) Error() string {
	text := "cloche: " + unconfinedText + e.Reason
	if !e.Origin.IsZero() {
		text += " (" + e.Origin.String() + ")"
	}
	return text
}

// An ExitError says that the command ran and did not succeed. It wraps no error of
// the context: whether that ended the run is in Canceled, and a limit of the policy
// in TimedOut or Exceeded.
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
