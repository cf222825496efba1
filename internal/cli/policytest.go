package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// runTests checks each claim of a policy and says how many hold.
func (a *app) runTests(session *cloche.Session, tests []policy.Test) error {
	var b strings.Builder
	failed := 0
	for _, t := range tests {
		line, ok := judge(session, t)
		if !ok {
			failed++
		}
		b.WriteString(printable(line) + "\n")
	}
	switch {
	case len(tests) == 0:
		b.WriteString("there are no tests; a policy file has them under tests:\n")
	case failed == 0:
		fmt.Fprintf(&b, "%d of %d hold\n", len(tests), len(tests))
	default:
		fmt.Fprintf(&b, "%d of %d hold, %d fail\n", len(tests)-failed, len(tests), failed)
	}
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return err
	}
	if failed > 0 {
		return statusError(statusDenied)
	}
	return nil
}

// judge says whether one claim holds.
func judge(session *cloche.Session, t policy.Test) (line string, ok bool) {
	claim := t.Action + " " + t.Target + " is " + verdict(t.Allow)
	d, err := session.Check(plan.Op(t.Action), t.Target)
	switch {
	case err != nil:
		return "FAIL  " + claim + ": " + err.Error() + " (" + t.Origin.String() + ")", false
	case d.Allowed != t.Allow:
		return fmt.Sprintf("FAIL  %s: it is %s: %s (%s)", claim, verdict(d.Allowed), d.Because(), t.Origin), false
	}
	return "ok    " + claim, true
}

func verdict(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}
