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
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c.Context(), &s, asJSON, all) },
	}
	s.add(c)
	boolFlag(c.Flags(), &all, "all", groupOutput, "list every rule, also those of presets")
	boolFlag(c.Flags(), &asJSON, "json", groupOutput, "print all findings as JSON")
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
