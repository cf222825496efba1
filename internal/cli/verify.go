package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
)

// proberName is the hidden subcommand that verify runs inside.
const proberName = "verify-prober"

func (a *app) verifyCommand() *cobra.Command {
	var s sessionFlags
	var asJSON, all bool
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

Of the rules that presets and cloche itself bring, those that hold are told by
number, and gaps with one cause by one of them. --all lists every rule.

The exit status is 0 if all rules that could be tried hold or are known gaps, 1 if
one is not held, 125 if the prober could not run.`,
		Example: `  cloche verify
  cloche verify --all
  cloche verify --preset strict --backend bwrap
  cloche verify --best-effort --backend landlock --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), &s, asJSON, all) },
	}
	s.add(c)
	boolFlag(c.Flags(), &all, "all", groupOutput, "list every rule, those of presets too")
	boolFlag(c.Flags(), &asJSON, "json", groupOutput, "print the findings as JSON, all of them")
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
func (a *app) verify(ctx context.Context, s *sessionFlags, asJSON, all bool) error {
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
		err = a.writeVerification(v, all)
	}
	if err == nil && !v.OK() {
		err = statusError(statusDenied)
	}
	return err
}
