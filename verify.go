package cloche

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/internal/verify"
	"github.com/cloche-dev/cloche/policy"
)

// An Outcome is how a rule stands after [Session.Verify] has tried it.
type Outcome = verify.Outcome

// The outcomes.
const (
	OutcomeHeld        = verify.Held
	OutcomeNotHeld     = verify.NotHeld
	OutcomeGap         = verify.Gap         // not held, and the backend says so itself
	OutcomeNotTestable = verify.NotTestable // it could not be tried here
)

// A Finding is what [Session.Verify] found out about one rule.
type Finding struct {
	// Rule names the rule in the words of a policy file, or of [backend.Gap].
	Rule string `json:"rule"`
	// Subject is the path, pattern, variable or limit that the rule is about.
	Subject string  `json:"subject,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Detail says what was tried and how it went, or why it was not.
	Detail string        `json:"detail"`
	Origin policy.Origin `json:"origin"`
}

// A Verification is what came of trying every rule of a plan.
type Verification struct {
	Backend  string    `json:"backend"`
	Findings []Finding `json:"findings"`
}

// Count returns how many rules have an outcome.
func (v *Verification) Count(o Outcome) int {
	n := 0
	for _, f := range v.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// OK reports whether no rule was found broken. Gaps that the backend declares
// and rules that cannot be tried here do not count: a strict policy runs with no
// gap, and what cannot be tried is listed.
func (v *Verification) OK() bool { return v.Count(OutcomeNotHeld) == 0 }

// Verify runs a prober in the sandbox of the session's policy, as any command is
// run, which tries each rule for real: it reads what is hidden, writes what is
// read-only, connects where it may not. What the prober says is compared with what
// the host has to show. Files of random names are made where the policy allows it,
// and removed again; nothing that was there is changed.
//
// prober is the command line of a program that calls [RunProber]: the program
// itself, say, with a word that makes it do that and nothing else. The error is not
// nil only where the rules could not be tried.
func (s *Session) Verify(ctx context.Context, prober ...string) (*Verification, error) {
	if len(prober) == 0 {
		return nil, errors.New("cloche: Verify: the prober's command line is empty; name a program that calls RunProber")
	}
	c := s.Command(ctx, prober[0], prober[1:]...)
	var stdout, stderr bytes.Buffer
	in, feed := io.Pipe()
	defer func() { _ = in.Close() }()
	c.Stdin, c.Stdout, c.Stderr, c.extra.Captured = in, &stdout, &stderr, true
	if err := c.Start(); err != nil {
		return nil, err
	}
	run, err := verify.Prepare(c.running.Plan, c.running.Launch)
	if err != nil {
		feed.CloseWithError(err)
		return nil, errors.Join(err, ignoreExit(c.wait(false)))
	}
	findings, err := probe(c, run, feed, &stdout, &stderr)
	if err := errors.Join(err, run.Close()); err != nil {
		return nil, fmt.Errorf("cloche: verify: %w", err)
	}
	v := &Verification{Backend: c.running.Launch.Backend}
	for _, f := range findings {
		v.Findings = append(v.Findings, Finding(f))
	}
	return v, nil
}

// probe tells the prober what to try, waits for it and judges what it says.
func probe(c *Cmd, run *verify.Run, feed *io.PipeWriter, stdout, stderr *bytes.Buffer) ([]verify.Finding, error) {
	input, err := run.Input()
	go func() {
		_, _ = feed.Write(input)
		_ = feed.Close()
	}()
	if err := errors.Join(err, c.wait(false)); err != nil { // the prober is denied hundreds of files
		return nil, fmt.Errorf("the prober did not finish: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return run.Findings(stdout.Bytes())
}

// ignoreExit is the error of a command that did not run: how one ended that was
// told nothing does not matter.
func ignoreExit(err error) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// RunProber is what a program does that [Session.Verify] runs inside: it reads
// from in what to try and writes to out how it went. It belongs at the very
// beginning of the program, with standard input and output.
func RunProber(in io.Reader, out io.Writer) error { return prober.Serve(in, out) }
