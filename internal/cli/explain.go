package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// An explanation is a plan together with what this machine makes of it. Its
// JSON is that of the plan with a few more fields.
type explanation struct {
	*plan.Plan
	Backend  string        `json:"backend,omitempty"`
	Confined bool          `json:"confined"`
	Gaps     []backend.Gap `json:"gaps,omitempty"`
	// Refused says why a command would not run, if it would not.
	Refused []string `json:"refused,omitempty"`

	// WorkspaceWhy says why the workspace is what it is.
	WorkspaceWhy string `json:"workspace_why,omitempty"`

	launch *backend.Launch
}

func (a *app) explainCommand() *cobra.Command {
	var s sessionFlags
	var asJSON, asArgv, asCalls, asProfile, inForce, forAgent bool
	c := &cobra.Command{
		Use:   "explain [flags] [-- CMD [ARG…]]",
		Short: "Show what a command may do, with the rule behind each line",
		Long: `Show what a command may do: each path, host, variable and limit, with the rule
behind it, and what this machine cannot enforce. Nothing is run.

With a command, its program and working folder are included.

With --in-force, inside a sandbox: the policy of that sandbox.

With --for-agent: a few sentences for an agent's prompt: what it may do, and how
to ask for more.

With --sbpl: the macOS profile of the policy, on any system.`,
		Example: `  cloche explain
  cloche explain --rw ../shared -- ls -l
  cloche explain --json
  cloche explain --for-agent
  cloche explain --argv --backend bwrap -- ls -l
  cloche explain --syscalls -- ls -l
  cloche explain --sbpl`,
		RunE: func(c *cobra.Command, args []string) error {
			if inForce {
				return a.writeInForce(asJSON)
			}
			if forAgent {
				return a.writeSummary(c.Context(), &s)
			}
			e, err := explain(c.Context(), &s, args)
			switch {
			case err != nil:
				return err
			case asArgv:
				return a.writeArgv(e)
			case asCalls:
				return a.writeCalls(e)
			case asProfile:
				return a.writeProfile(e)
			case asJSON:
				return writeJSON(a.out, e)
			}
			return a.writeExplanation(e)
		},
	}
	s.add(c)
	c.Flags().SetInterspersed(false)
	boolFlag(c.Flags(), &asJSON, "json", groupOutput, "print the plan as JSON")
	boolFlag(c.Flags(), &asArgv, "argv", groupOutput, "print what would be started, one argument per line, values of variables left out")
	boolFlag(c.Flags(), &forAgent, "for-agent", groupOutput, "print what an agent should know, for its prompt")
	boolFlag(c.Flags(), &inForce, "in-force", groupOutput, "print the policy of the sandbox that cloche itself runs in")
	boolFlag(c.Flags(), &asCalls, "syscalls", groupOutput, "print the system calls that the backend native makes, each with the rule behind it")
	boolFlag(c.Flags(), &asProfile, "sbpl", groupOutput, "print the profile that the backend seatbelt makes for macOS")
	return c
}

// explain makes the plan for a command, or for none.
func explain(ctx context.Context, s *sessionFlags, argv []string) (*explanation, error) {
	session, l, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	e := &explanation{WorkspaceWhy: l.why}
	if len(argv) > 0 {
		cmd := session.Command(ctx, argv[0], argv[1:]...)
		cmd.Dir = l.dir
		if e.Plan, err = cmd.Plan(); err != nil {
			return nil, err
		}
		e.enforce(cmd)
		return e, nil
	}
	if e.Plan, err = session.Explain(); err != nil {
		return nil, err
	}
	// What a backend makes of a plan depends on no command, and every system
	// has a shell.
	e.enforce(session.Command(ctx, "/bin/sh"))
	return e, nil
}

// writeSummary prints what an agent should know.
func (a *app) writeSummary(ctx context.Context, s *sessionFlags) error {
	session, _, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	text, err := session.Summary(ctx, "")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, text)
	return err
}

// enforce asks how the plan would be enforced here.
func (e *explanation) enforce(cmd *cloche.Cmd) {
	launch, err := cmd.Launch()
	if err == nil {
		e.launch, e.Backend, e.Confined, e.Gaps = launch, launch.Backend, launch.Confined, launch.Gaps
		return
	}
	if gap, ok := as[*cloche.GapError](err); ok {
		e.Backend, e.Confined, e.Gaps = gap.Backend, true, gap.Gaps
		e.Refused = []string{"the policy is strict, and not all of it can be enforced (to run anyway: --best-effort)"}
		return
	}
	e.Refused = errorLines(err)
}

// writeArgv prints the launch, one word per line.
func (a *app) writeArgv(e *explanation) error {
	if e.launch == nil {
		return a.refuse(e)
	}
	if e.launch.Path == "" {
		return fmt.Errorf("backend %s starts no program; see --syscalls, or name another backend with --backend", e.launch.Backend)
	}
	for _, list := range [][]string{{e.launch.Path}, e.launch.Argv[1:], e.launch.Options} {
		for _, word := range list {
			if _, err := fmt.Fprintln(a.out, printable(word)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeCalls prints the system calls that make the sandbox.
func (a *app) writeCalls(e *explanation) error {
	switch {
	case e.launch == nil:
		return a.refuse(e)
	case e.launch.Program == nil:
		return fmt.Errorf("backend %s starts a program; see --argv, or name another backend with --backend", e.launch.Backend)
	}
	_, err := io.WriteString(a.out, e.launch.Program.String())
	return err
}

// writeProfile prints the profile for macOS, and as comments what it leaves open. A
// path may hold what acts on a terminal: each line is printed as plain text.
func (a *app) writeProfile(e *explanation) error {
	text, gaps, err := cloche.SeatbeltProfile(e.Plan)
	if err != nil {
		return err
	}
	for _, g := range gaps {
		text += "; not enforced: " + strings.ReplaceAll(g.String(), "\n", " ") + "\n"
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(a.out, printable(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) refuse(e *explanation) error {
	for _, line := range e.Refused {
		a.words.say(red, line)
	}
	return statusError(statusRefused)
}
