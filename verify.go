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

// An Outcome is the result of one rule in [Session.Verify].
type Outcome = verify.Outcome

// The outcomes.
const (
	OutcomeHeld        = verify.Held
	OutcomeNotHeld     = verify.NotHeld
	OutcomeGap         = verify.Gap         // not held, and the backend declares the gap
	OutcomeNotTestable = verify.NotTestable // the rule could not be tried here
)

// A Finding is the result of [Session.Verify] for one rule.
type Finding struct {
	// Rule names the rule in the words of a policy file, or of [backend.Gap].
	Rule string `json:"rule"`
	// Subject is the path, pattern, variable or limit that the rule is about.
	Subject string  `json:"subject,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Detail says what was tried and what happened, or why it was not tried.
	Detail string        `json:"detail"`
	Origin policy.Origin `json:"origin"`
}

// A Verification is the result of trying every rule of a plan.
type Verification struct {
	Backend  string    `json:"backend"`
	Findings []Finding `json:"findings"`
}

// Count returns the number of rules with an outcome.
func (v *Verification) Count(o Outcome) int {
	n := 0
	for _, f := range v.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// OK reports whether no rule was found broken. Gaps that the backend declares and rules that
// cannot be tried here do not count: a strict policy does not run with a gap, and rules that
// cannot be tried are listed.
func (v *Verification) OK() bool { return v.Count(OutcomeNotHeld) == 0 }

// Verify tries each rule of the session's policy. It runs a prober in the sandbox, as any
// command is run: the prober tries to read what is hidden, write what is read-only, and
// connect where it may not. Its answers are compared with what the host shows. Verify makes
// files of random names where the policy allows it, and removes them again; it changes no
// existing file.
//
// prober is the command line of a program that calls [RunProber], for example the caller
// itself with an argument that makes it do only that. The error is not nil only if the rules
// could not be tried.
func (s *Session) Verify(ctx context.Context, prober ...string) (*Verification, error) {
	if len(prober) == 0 {
		return nil, errors.New("cloche: Verify: the prober's command line is empty; name a program that calls RunProber")
	}
	if name := s.engine.Policy().Review; name != "" {
		return nil, fmt.Errorf("cloche: Verify: the policy has the review %s, which would keep the files that Verify makes; the rules are the same without it: --review=false", name)
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

// probe sends the prober its tasks, waits for it and evaluates its answers.
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

// ignoreExit returns the error of a command that did not run, and nil for one that ran. How a
// prober without tasks ends does not matter.
func ignoreExit(err error) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// RunProber does the work of the prober that [Session.Verify] runs inside: it reads from in
// what to try and writes the outcomes to out. Call it first thing in the program, with
// standard input and output.
func RunProber(in io.Reader, out io.Writer) error { return prober.Serve(in, out) }
