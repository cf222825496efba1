package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
)

// proberName is the hidden subcommand that verify runs inside.
const proberName = "verify-prober"

func (a *app) verifyCommand() *cobra.Command {
	var s sessionFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Try each rule from inside the sandbox, and say whether it holds",
		Long: `Try each rule for real. A prober runs in the sandbox that a command would get, and
tries to read what is hidden, to write what is read-only or protected, to get out
by the network, to see and signal other processes, and so on. cloche compares what
it says with what the host has to show: a file that arrived, a connection.

Files of random names are made where the policy allows it, and removed again.
Nothing that was there is changed.

Each rule is
  held          it was tried, and holds
  not held      it was tried, and does not: a defect of cloche or of this machine
  gap           it does not hold, and the backend says so itself (--best-effort)
  not testable  it could not be tried here; the reason is given

The exit status is 0 if all rules that could be tried hold or are known gaps, 1 if
one is not held, 125 if the prober could not run.`,
		Example: `  cloche verify
  cloche verify --preset strict --backend bwrap
  cloche verify --best-effort --backend landlock --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), &s, asJSON) },
	}
	s.add(c)
	boolFlag(c.Flags(), &asJSON, "json", groupOutput, "print the findings as JSON")
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
func (a *app) verify(ctx context.Context, s *sessionFlags, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the program of cloche itself is not known: %w", err)
	}
	session, _, err := s.open(ctx, withAudit, deferred)
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
	if asJSON {
		err = writeJSON(a.out, v)
	} else {
		err = a.writeVerification(v)
	}
	if err == nil && !v.OK() {
		err = statusError(statusDenied)
	}
	return err
}

// writeVerification writes the findings for people, the worst last, where they
// are seen.
func (a *app) writeVerification(v *cloche.Verification) error {
	var b strings.Builder
	for _, outcome := range []cloche.Outcome{cloche.Held, cloche.NotTestable, cloche.Gap, cloche.NotHeld} {
		t := &table{}
		for _, f := range v.Findings {
			if f.Outcome == outcome {
				t.add(f.Rule, f.Subject, f.Origin.String(), f.Detail)
			}
		}
		if len(t.rows) > 0 {
			b.WriteString(outcomeHeading(outcome, wantsColour(a.out)) + "\n")
			t.write(&b, "  ")
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "verified on %s: %d held, %d not held, %d gaps, %d not testable\n", printable(v.Backend),
		v.Count(cloche.Held), v.Count(cloche.NotHeld), v.Count(cloche.Gap), v.Count(cloche.NotTestable))
	_, err := io.WriteString(a.out, b.String())
	return err
}

// outcomeHeading is the heading of the findings with an outcome.
func outcomeHeading(o cloche.Outcome, colour bool) string {
	codes := map[cloche.Outcome]string{cloche.Held: green, cloche.Gap: yellow, cloche.NotHeld: red}
	if code := codes[o]; colour && code != "" {
		return code + string(o) + reset
	}
	return string(o)
}
