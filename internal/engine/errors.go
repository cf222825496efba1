package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/policy"
)

// A GapError says that the backend cannot enforce the whole policy here, and
// that the policy requires it.
type GapError struct {
	Backend string
	// Gaps are all gaps, optional ones too.
	Gaps []backend.Gap
}

// Error names every gap. If there are several, it leaves out their reasons, which would fill a
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

// Error says what was wanted and why it is not available.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the reasons.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Cause returns the cause if it is a known one (a missing program, user namespaces denied, a
// mount denied). Of several it returns the first known one.
func (e *UnavailableError) Cause() string {
	return firstCause(e.Err)
}

func firstCause(err error) string {
	var one *backend.UnavailableError
	if errors.As(err, &one) {
		return one.Probe.Cause
	}
	var none *backend.NoBackendError
	if errors.As(err, &none) && none.Unsupported() {
		return cause.UnsupportedOS
	}
	return cause.None
}

// unconfinedText begins the notice of a command that runs without a sandbox.
const unconfinedText = "the command runs without a sandbox: "

// An UnconfinedError says that commands run without a sandbox, and why.
type UnconfinedError struct {
	Reason string
	// Origin is the rule or the switch that disabled the sandbox, if one did.
	Origin policy.Origin
}

// Error returns the reason and its origin.
func (e *UnconfinedError) Error() string {
	text := "cloche: " + unconfinedText + e.Reason
	if !e.Origin.IsZero() {
		text += " (" + e.Origin.String() + ")"
	}
	return text
}
