package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/plan"
)

// Bounds of run_command.
const (
	defaultTimeout = 2 * time.Minute
	maxTimeout     = 24 * time.Hour
	defaultOutput  = 32 << 10
	maxOutput      = 256 << 10
	// killDelay is what a command that is ended has to clean up.
	killDelay = time.Second
)

type runInput struct {
	Argv    []string          `json:"argv,omitempty" jsonschema:"the program and its arguments; no shell interprets them. Give either argv or shell"`
	Shell   string            `json:"shell,omitempty" jsonschema:"a script for /bin/sh, for pipes and the like. Give either argv or shell"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"the folder to start in, relative or absolute"`
	Timeout float64           `json:"timeout_seconds,omitempty" jsonschema:"end the command after this time; 120 if not given"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"standard input; empty if not given"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables to set for the command"`
	Output  int               `json:"max_output_bytes,omitempty" jsonschema:"how much of the end of stdout and of stderr to return, each; 32768 if not given, at most 262144"`
}

type runOutput struct {
	ExitCode    int    `json:"exit_code" jsonschema:"the command's own, or 128 plus the number of the signal that ended it"`
	Signal      string `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out,omitempty" jsonschema:"the command was ended for its time"`
	Canceled    bool   `json:"canceled,omitempty"`
	Exceeded    string `json:"exceeded,omitempty" jsonschema:"the limit for which the command was ended"`
	DurationMS  int64  `json:"duration_ms"`
	Stdout      string `json:"stdout" jsonschema:"the end of standard output"`
	StdoutBytes int64  `json:"stdout_bytes" jsonschema:"how much there was in all"`
	Stderr      string `json:"stderr" jsonschema:"the end of standard error"`
	StderrBytes int64  `json:"stderr_bytes" jsonschema:"how much there was in all"`
	// Refused lists the most frequent first.
	Refused []refusal `json:"refused,omitempty" jsonschema:"what the sandbox refused"`
	Gaps    []string  `json:"gaps,omitempty" jsonschema:"parts of the policy that are not enforced on this machine"`
	Notices []string  `json:"notices,omitempty"`
	Backend string    `json:"backend" jsonschema:"what enforced the policy"`
}

// run is run_command.
func (c *client) run(ctx context.Context, call call, in runInput) (string, runOutput, error) {
	var none runOutput
	argv, err := in.command()
	if err != nil {
		return "", none, err
	}
	s, err := c.sessions.takeOnce(ctx)
	if err != nil {
		return "", none, err
	}
	defer s.release()
	dir, err := c.startFolder(s, in.Cwd)
	if err != nil {
		return "", none, err
	}
	if err := c.visibleProgram(s, dir, argv[0]); err != nil {
		return "", none, err
	}
	progress, stop := follow(ctx, call)
	defer stop()
	j := job{argv: argv, dir: dir, env: in.Env, stdin: in.Stdin, limit: in.outputLimit(), timeout: in.timeout(), live: progress}
	out, err := c.execute(ctx, s, j)
	if err != nil {
		return "", none, err
	}
	return out.String(), *out, nil
}

// command checks the arguments and returns those of the process.
func (in *runInput) command() ([]string, error) {
	argv := in.Argv
	switch {
	case len(argv) > 0 && in.Shell != "":
		return nil, errors.New("both argv and shell are given; give one of them")
	case in.Shell != "":
		argv = []string{"/bin/sh", "-c", in.Shell}
	case len(argv) == 0 || argv[0] == "":
		return nil, errors.New("no command; give argv, such as [\"ls\", \"-la\"], or shell")
	}
	nul := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	if slices.ContainsFunc(argv, nul) {
		return nil, errors.New("an argument holds a NUL byte, which no command can be given; leave it out")
	}
	for name, value := range in.Env {
		if !isVariable(name) || nul(value) {
			return nil, fmt.Errorf("env: %s cannot be set; names are letters, digits and _, and values hold no NUL byte", shortened(name))
		}
	}
	if in.Timeout < 0 || in.Output < 0 {
		return nil, errors.New("timeout_seconds and max_output_bytes cannot be negative; leave them out for the defaults")
	}
	return argv, nil
}

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func (in *runInput) timeout() time.Duration {
	if in.Timeout == 0 {
		return defaultTimeout
	}
	return min(maxTimeout, time.Duration(min(in.Timeout, maxTimeout.Seconds())*float64(time.Second)))
}

func (in *runInput) outputLimit() int {
	if in.Output == 0 {
		return defaultOutput
	}
	return min(in.Output, maxOutput)
}

// startFolder is the real folder that a command starts in.
func (c *client) startFolder(s *session, cwd string) (string, error) {
	if cwd == "" {
		return c.config.Dir, nil
	}
	dir, err := c.look(s, cwd)
	if err != nil {
		return "", fmt.Errorf("cwd: %w", err)
	}
	return dir, nil
}

// visibleProgram keeps the error about a program from telling whether a hidden
// file exists.
func (c *client) visibleProgram(s *session, dir, name string) error {
	if !strings.Contains(name, "/") {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	_, err := c.look(s, name)
	return err
}

// A job is a command to execute.
type job struct {
	argv    []string
	dir     string
	env     map[string]string
	stdin   string
	limit   int
	timeout time.Duration
	live    *live
}

var errTimeout = errors.New("the time is up")

// execute runs a command in the sandbox. The error is not nil if it did not run.
func (c *client) execute(ctx context.Context, s *session, j job) (*runOutput, error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	default:
		return nil, fmt.Errorf("%d commands are running already; wait for one to end", maxRunning)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, j.timeout, errTimeout)
	defer cancel()
	stdout, stderr := &tail{limit: j.limit, live: j.live}, &tail{limit: j.limit, live: j.live}
	cmd := s.Command(ctx, j.argv[0], j.argv[1:]...)
	cmd.Dir, cmd.KillDelay, cmd.Stdout, cmd.Stderr = j.dir, killDelay, stdout, stderr
	cmd.Stdin = strings.NewReader(j.stdin)
	for name, value := range j.env {
		cmd.SetEnv(name, value)
	}
	err := cmd.Run()
	var exit *cloche.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("the command did not run: %w", err)
	}
	out := newRunOutput(cmd.Result())
	out.Refused = c.refusals.note(cmd.Result())
	slices.SortStableFunc(out.Refused, func(a, b refusal) int { return b.Count - a.Count })
	if out.Canceled && context.Cause(ctx) == errTimeout {
		out.Canceled, out.TimedOut = false, true
	}
	out.Stdout, out.StdoutBytes, _ = stdout.text()
	out.Stderr, out.StderrBytes, _ = stderr.text()
	return out, nil
}

func newRunOutput(r *cloche.Result) *runOutput {
	out := &runOutput{ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, Canceled: r.Canceled, Exceeded: r.Exceeded,
		DurationMS: r.Duration.Milliseconds(), Backend: r.Backend}
	for _, g := range r.Gaps {
		out.Gaps = append(out.Gaps, visible(g.String()))
	}
	for _, n := range r.Notices {
		if n.Kind == plan.NoticeUnconfined || n.Kind == plan.NoticeNetwork {
			out.Notices = append(out.Notices, visible(n.Text))
		}
	}
	return out
}

// String is how it went, in words for a model.
func (o *runOutput) String() string {
	var b strings.Builder
	b.WriteString(o.ending() + fmt.Sprintf(" after %s\n", (time.Duration(o.DurationMS)*time.Millisecond).String()))
	writeStream(&b, "stdout", o.Stdout, o.StdoutBytes)
	writeStream(&b, "stderr", o.Stderr, o.StderrBytes)
	for i, r := range o.Refused {
		if i == maxShown {
			fmt.Fprintf(&b, "and %d more refusals: see %s\n", len(o.Refused)-i, toolExplain)
			break
		}
		b.WriteString(r.String() + "\n")
	}
	for _, g := range o.Gaps {
		b.WriteString("not enforced on this machine: " + g + "\n")
	}
	for _, n := range o.Notices {
		b.WriteString("note: " + n + "\n")
	}
	return b.String()
}

func (o *runOutput) ending() string {
	switch {
	case o.TimedOut:
		return "ended for its time"
	case o.Exceeded != "":
		return "exceeded its limit of " + o.Exceeded
	case o.Canceled:
		return "canceled"
	case o.Signal != "":
		return "ended by " + o.Signal
	}
	return fmt.Sprintf("exit code %d", o.ExitCode)
}

func writeStream(b *strings.Builder, name, text string, total int64) {
	if total == 0 {
		return
	}
	b.WriteString("--- " + name)
	if total > int64(len(text)) {
		fmt.Fprintf(b, " (the last %d of %d bytes)", len(text), total)
	}
	b.WriteString(" ---\n" + text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteString("\n")
	}
}
