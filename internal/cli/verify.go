package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// proberName is the hidden subcommand that verify runs inside.
const proberName = "verify-prober"

func (a *app) verifyCommand() *cobra.Command {
	var s sessionFlags
	var all bool
	c := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Try each rule from inside the sandbox",
		Long: `Try each rule for real. A test program runs in the sandbox that a command would
get. It tries to read what is hidden, to write what is read-only or protected, to
use the network, to see and signal other processes, and so on. cloche compares its
answers with the effect outside: a file that appeared, a connection that arrived.

Files with random names are created where the policy allows it, and removed again.
Existing files are not changed.

Each rule is
  held          it was tried and is enforced
  not held      it was tried and is not enforced: a bug of cloche or of this machine
  gap           it is not enforced, and the backend reports that (--best-effort)
  not testable  it could not be tried here; the reason is given

Rules of presets and of cloche itself are counted, not listed; gaps with the same
cause are one line. --all lists every rule.

The exit status is 0 if every tried rule is held or a known gap, 1 if one is not
held, 125 if the test program could not run.`,
		Example: `  cloche verify
  cloche verify --all
  cloche verify --preset strict --backend bwrap
  cloche verify --best-effort --backend landlock --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), &s, all) },
	}
	s.add(c)
	boolFlag(c.Flags(), &all, "all", groupOutput, "list every rule, also those of presets")
	a.jsonFlag(c, "print all findings as JSON")
	return c
}

// proberCommand is the inside of verify.
func (a *app) proberCommand() *cobra.Command {
	return &cobra.Command{
		Use: proberName, Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return cloche.RunProber(a.in, a.out) },
	}
}

// verify runs the prober and says what was found. A signal ends the prober, and
// what it made is removed.
func (a *app) verify(ctx context.Context, s *sessionFlags, all bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the program of cloche itself is not known: %w", err)
	}
	l, err := s.load()
	if err != nil {
		return err
	}
	session, err := l.open(ctx, l.withAudit(), cloche.WithDeferredPlan())
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	done := a.words.progress("trying each rule in a sandbox")
	v, err := session.Verify(ctx, self, proberName)
	done()
	if err != nil {
		a.words.fail(err)
		return statusError(statusRefused)
	}
	colour := wantsColour(a.out)
	return deniedUnless(v.OK(), a.print(v, func(b *strings.Builder) { writeVerification(b, v, all, colour) }))
}

// writeVerification writes the findings, the worst last, where they are seen.
// Without all, the hundreds of rules of presets and of cloche itself are counted
// where they are held, and gaps of one cause are one line. The user's own rules, and
// every rule that is not held, are always listed.
func writeVerification(b *strings.Builder, v *cloche.Verification, all, colour bool) {
	write := func(o cloche.Outcome, code, more string, t *table) {
		heading := string(o)
		if colour && code != "" {
			heading = code + heading + reset
		}
		if len(t.rows) > 0 {
			b.WriteString(heading + more + "\n")
			t.write(b, "  ")
			b.WriteString("\n")
		}
	}
	given, own := heldLines(v, all)
	ofOwn, hint := "", ""
	if len(given.rows) > 0 {
		ofOwn, hint = ", of your own rules", "--all lists each of them, with where it comes from and what was tried\n"
	}
	write(cloche.OutcomeHeld, green, "", given)
	write(cloche.OutcomeHeld, green, ofOwn, own)
	write(cloche.OutcomeNotTestable, "", "", findingLines(withOutcome(v.Findings, cloche.OutcomeNotTestable)))
	write(cloche.OutcomeGap, yellow, "", gapLines(withOutcome(v.Findings, cloche.OutcomeGap), all))
	write(cloche.OutcomeNotHeld, red, "", findingLines(withOutcome(v.Findings, cloche.OutcomeNotHeld)))
	fmt.Fprintf(b, "verified on %s: %d held, %d not held, %d gaps, %d not testable\n%s", printable(v.Backend),
		v.Count(cloche.OutcomeHeld), v.Count(cloche.OutcomeNotHeld), v.Count(cloche.OutcomeGap), v.Count(cloche.OutcomeNotTestable), hint)
}

// heldLines are the rules that are held: how many of each kind presets gave, and those that
// are listed one by one.
func heldLines(v *cloche.Verification, all bool) (given, single *table) {
	given, single = &table{}, &table{}
	for _, group := range groupBy(withOutcome(v.Findings, cloche.OutcomeHeld), func(f *cloche.Finding) string { return f.Rule }) {
		var subjects []string
		count := 0
		for _, f := range group {
			if all || !isGiven(f) {
				addFinding(single, f)
				continue
			}
			count++
			if !slices.Contains(subjects, f.Subject) {
				subjects = append(subjects, f.Subject)
			}
		}
		if count > 0 {
			given.add(group[0].Rule, strconv.Itoa(count), few(subjects))
		}
	}
	return given, single
}

// gapLines are the gaps. Of many that were given and have one cause, one stands for
// the others.
func gapLines(gaps []cloche.Finding, all bool) *table {
	const many = 3
	alike := map[string]int{}
	for _, f := range gaps {
		if isGiven(f) && !all {
			alike[causeOf(f)]++
		}
	}
	t := &table{}
	for _, f := range gaps {
		cause := causeOf(f)
		switch n := alike[cause]; {
		case !isGiven(f) || n >= 0 && n <= many:
			addFinding(t, f)
		case n > many:
			f.Detail += fmt.Sprintf(" (and %d more of %s)", n-1, f.Origin.Source)
			addFinding(t, f)
			alike[cause] = -1 // told
		}
	}
	return t
}

// causeOf is the same for gaps of one rule, of one preset, for which the backend gives
// one reason: it ends the detail, after what was tried.
func causeOf(f cloche.Finding) string {
	return strings.Join([]string{f.Rule, f.Origin.Source, f.Detail[strings.LastIndex(f.Detail, ": ")+1:]}, "\n")
}

// isGiven reports whether a rule is a preset's or cloche's own.
func isGiven(f cloche.Finding) bool { return f.Origin.Layer <= policy.LayerTool }

func withOutcome(findings []cloche.Finding, o cloche.Outcome) []cloche.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f cloche.Finding) bool { return f.Outcome != o })
}

func findingLines(findings []cloche.Finding) *table {
	t := &table{}
	for _, f := range findings {
		addFinding(t, f)
	}
	return t
}

func addFinding(t *table, f cloche.Finding) { t.add(f.Rule, f.Subject, f.Origin.String(), f.Detail) }
