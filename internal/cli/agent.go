package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/agents"
	"github.com/cloche-dev/cloche/internal/keeper"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

func (a *app) agentCommand() *cobra.Command {
	c := group("agent", "Run a coding agent in a sandbox, or each of its commands",
		`Put a coding agent under cloche: claude, codex, gemini, opencode, copilot, cline,
qwen, continue, aider, crush, amp or cursor.

"run" starts the whole agent in a sandbox. It is the only way that also covers the
agent's own file tools, its hooks and its servers.

"install" leaves the agent outside and has each of its shell commands run in a
sandbox. "status" says whether that is in force here, "uninstall" undoes it.`,
		"  cloche agent run claude\n  cloche agent install claude\n  cloche agent status\n  cloche agent uninstall claude")
	c.AddCommand(a.agentRun(), a.agentInstall(), a.agentUninstall(), a.agentStatus(), a.agentExecCommand())
	return c
}

func (a *app) agentRun() *cobra.Command {
	r := &runFlags{}
	c := &cobra.Command{
		Use:   "run [flags] NAME [ARG…]",
		Short: "Run a whole agent in a sandbox",
		Long: `Run a whole agent in a sandbox, under the preset of its name: it can use its login,
keep its transcripts, reach its own service and write the project.

The flags are those of cloche run, and come before NAME. Everything after NAME
belongs to the agent. A sandbox of the agent's own could not start inside this one,
so it is switched off, and cloche says so.

Sign in once outside. A key is passed with --env NAME=VALUE.`,
		Example: `  cloche agent run claude
  cloche agent run --ask codex
  cloche agent run --env GEMINI_API_KEY="$GEMINI_API_KEY" gemini -p 'fix it'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("no agent; write %s NAME: %s", c.CommandPath(), strings.Join(agents.Names(), ", "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.runAgent(c.Context(), r, args[0], args[1:]) },
	}
	r.add(a, c)
	return c
}

func (a *app) runAgent(ctx context.Context, r *runFlags, name string, args []string) error {
	agent, err := agents.Find(name)
	if err != nil {
		return err
	}
	program, _ := findAgent(agent)
	if program == "" {
		a.words.fail(fmt.Errorf("%s is not installed: there is no %s in PATH", agent.Title, strings.Join(agent.Programs, " or ")))
		return statusError(statusNotFound)
	}
	if !slices.Contains(policy.Presets(), agent.Name) {
		return fmt.Errorf("this version of cloche has no preset for %s; use a newer one, or write a policy and run: cloche run -- %s", agent.Title, program)
	}
	r.set("preset", agent.Name)
	// What is installed for single commands calls cloche, which inside only starts them.
	if self, err := ownPath(); err == nil {
		r.set("ro", self)
	}
	if agent.Inner != "" && !a.json {
		a.words.warn(agent.Title + "'s own " + agent.Inner + " is switched off: it cannot start in this one, which confines the whole agent")
	}
	r.prepare = func(cmd *cloche.Cmd) func() {
		for _, v := range agent.Env {
			variable, value, _ := strings.Cut(v, "=")
			cmd.SetEnv(variable, value)
		}
		return func() {}
	}
	return a.run(ctx, r, slices.Concat([]string{program}, agent.Args, args))
}

// findAgent returns the program of an agent, by its name and its path.
func findAgent(agent *agents.Agent) (name, path string) {
	for _, name := range agent.Programs {
		if path, err := exec.LookPath(name); err == nil {
			return name, path
		}
	}
	return "", ""
}

// set adds a policy flag, as if it had been typed.
func (s *sessionFlags) set(flag, value string) {
	i := slices.IndexFunc(policyFlags[:], func(f flagSpec) bool { return f.name == flag })
	s.typed = append(s.typed, typed{&policyFlags[i], value})
}

// scopeFlags say whose settings install edits.
type scopeFlags struct{ project, system bool }

// places returns where the settings of a scope are, and which program they call.
func (f *scopeFlags) places() (*agents.Places, error) {
	p := &agents.Places{Scope: agents.User, Getenv: os.Getenv}
	switch {
	case f.project && f.system:
		return nil, errors.New("--project and --system are both given; keep one of them")
	case f.project:
		p.Scope = agents.Project
	case f.system:
		p.Scope = agents.System
	}
	var err error
	if p.Home, err = os.UserHomeDir(); err != nil {
		return nil, fmt.Errorf("the home folder is not known: %w; set HOME", err)
	}
	if p.Cloche, err = ownPath(); err != nil {
		return nil, err
	}
	if p.Dir, err = workingFolder(); err != nil {
		return nil, err
	}
	p.Project, err = workspaceHere()
	if f.project {
		return p, err
	}
	return p, nil // elsewhere no project has a say
}

// ownPath is the path of this program for others to call: the one in PATH, if that is this program, because a
// package manager may keep the file itself at a path that changes with each version.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of cloche is not known: %w", err)
	}
	inPath, missing := exec.LookPath("cloche")
	one, oneErr := os.Stat(self)
	other, otherErr := os.Stat(inPath)
	if errors.Join(missing, oneErr, otherErr) == nil && filepath.IsAbs(inPath) && os.SameFile(one, other) {
		self = inPath
	}
	return self, nil
}

func (a *app) agentInstall() *cobra.Command {
	var f scopeFlags
	var print bool
	c := &cobra.Command{
		Use:   "install [flags] NAME",
		Short: "Have each shell command of an agent run in a sandbox",
		Long: `Edit the settings of an agent so that each of its shell commands runs in a sandbox,
under the policy of the project. The agent itself stays outside, and so do its file
tools, its hooks and its MCP servers: cloche agent run covers those too.

What is in the files already stays as it is. A copy is kept, and cloche agent
uninstall brings it back.`,
		Example: "  cloche agent install claude\n  cloche agent install --project claude\n  cloche agent install --print codex",
		Args:    args(1, 1, "NAME"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.installAgent(&f, args[0], print) },
	}
	boolFlag(c.Flags(), &f.project, "project", groupRun, "for this project alone, in a file of the project")
	boolFlag(c.Flags(), &f.system, "system", groupRun, "for all users, in the managed settings of the agent; needs root")
	boolFlag(c.Flags(), &print, "print", groupOutput, "print the files as they would be, and write nothing")
	return c
}

func (a *app) installAgent(f *scopeFlags, name string, print bool) error {
	agent, err := agents.Find(name)
	if err != nil {
		return err
	}
	p, err := f.places()
	if err != nil {
		return err
	}
	changes, err := agent.Changes(p)
	if err != nil {
		return err
	}
	if print {
		for _, c := range changes {
			fmt.Fprintf(a.out, "# %s\n%s", printable(c.File), c.New)
		}
		return nil
	}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	if machine.Nested() {
		return errors.New("this is inside a sandbox of cloche, which shows no settings of agents to change; run it outside")
	}
	store := agents.Open(dirs.Data)
	if !slices.ContainsFunc(changes, func(c agents.Change) bool { return !c.Done }) {
		fmt.Fprintf(a.out, "%s: already installed in %s\n", agent.Title, printable(changes[0].File))
		return nil
	}
	// An earlier entry, which may call another cloche, is taken out first.
	if _, err := store.Uninstall(agent.Name, p.Scope, p.Project); err != nil {
		return err
	}
	if changes, err = agent.Changes(p); err != nil {
		return err
	}
	if err := store.Install(agent, p, changes); err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Fprintf(a.out, "%s: wrote %s\n", agent.Title, printable(c.File))
	}
	for _, note := range []string{agent.Note, agent.UserNote} {
		if note != "" && (note == agent.Note || p.Scope == agents.User) {
			a.words.warn(note)
		}
	}
	if policy.PresetTried(agent.Name) == "" {
		a.words.warn("no version of " + agent.Title + " was tried with this: check that a command cannot write outside of the project")
	}
	return nil
}

func (a *app) agentUninstall() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall NAME",
		Short: "Undo install",
		Long: `Undo cloche agent install: for you, for the system and for this project. A file that
was not changed since is as it was before, byte for byte. From one that was
changed, only the entries of cloche are removed.`,
		Example: "  cloche agent uninstall claude",
		Args:    args(1, 1, "NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			agent, err := agents.Find(args[0])
			if err != nil {
				return err
			}
			dirs, err := machine.OwnDirs()
			if err != nil {
				return err
			}
			project, _ := workspaceHere() // elsewhere there is none
			done, err := agents.Open(dirs.Data).Uninstall(agent.Name, "", project)
			for _, u := range done {
				fmt.Fprintf(a.out, "%s: %s %s\n", agent.Title, u.Did, printable(u.File))
			}
			if err == nil && len(done) == 0 {
				fmt.Fprintf(a.out, "%s: nothing is installed\n", agent.Title)
			}
			return err
		},
	}
}

// An agentState is what status says about an agent.
type agentState struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Program string `json:"program,omitempty"`
	Version string `json:"version,omitempty"`
	// Tried is the version that was tried with cloche, or empty.
	Tried  string         `json:"tried,omitempty"`
	Scopes []agents.Scope `json:"installed"`
	Files  []string       `json:"files,omitempty"`
	// Effective: each shell command runs under cloche, here and now.
	Effective bool     `json:"effective"`
	Problems  []string `json:"problems,omitempty"`
}

func (a *app) agentStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status [flags] [NAME]",
		Short: "Show whether what was installed is in force here",
		Long: `Show for each agent whether its shell commands run in a sandbox here and now.

What was installed is not in force if the entry was changed, if it calls a cloche
that is not there, if this project's settings are above it, if the agent does not
trust it, if the sandbox is switched off, or if nobody tried this version of the
agent. Then the exit status is 1, and cloche says why.`,
		Example: "  cloche agent status\n  cloche agent status claude --json",
		Args:    args(0, 1, "[NAME]"),
		RunE:    func(c *cobra.Command, args []string) error { return a.showAgents(c.Context(), args) },
	}
	a.jsonFlag(c, "print the state as JSON")
	return c
}

func (a *app) showAgents(ctx context.Context, names []string) error {
	list := agents.All()
	if len(names) > 0 {
		one, err := agents.Find(names[0])
		if err != nil {
			return err
		}
		list = []*agents.Agent{one}
	}
	p, err := new(scopeFlags).places()
	if err != nil {
		return err
	}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	kept := keeper.Running(keepersDir(dirs))
	states, bad := []agentState{}, false
	for _, agent := range list {
		st, err := agentStateOf(ctx, agent, p)
		if err != nil {
			return err
		}
		bad = bad || len(st.Scopes) > 0 && !st.Effective
		states = append(states, st)
	}
	err = a.print(states, func(b *strings.Builder) {
		for i := range states {
			states[i].write(b)
		}
		for _, pid := range kept {
			fmt.Fprintf(b, "process %d keeps a warm sandbox for an agent\n", pid)
		}
	})
	if err == nil && bad {
		err = statusError(statusDenied)
	}
	return err
}

func agentStateOf(ctx context.Context, agent *agents.Agent, p *agents.Places) (agentState, error) {
	st := agentState{Name: agent.Name, Title: agent.Title, Tried: policy.PresetTried(agent.Name), Scopes: []agents.Scope{}}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return st, err
	}
	installed, err := agents.Open(dirs.Data).Installed(agent.Name, p.Project)
	if err != nil {
		return st, err
	}
	if !slices.ContainsFunc(installed, func(r agents.Record) bool { return r.Scope == agents.System }) {
		installed = append(installed, agent.System(p)...)
	}
	_, st.Program = findAgent(agent)
	if len(installed) == 0 {
		return st, nil
	}
	for _, r := range installed {
		if !slices.Contains(st.Scopes, r.Scope) {
			st.Scopes = append(st.Scopes, r.Scope)
		}
		st.Files = append(st.Files, r.File)
	}
	st.Problems = agent.Problems(installed, p)
	switch {
	case st.Program == "":
		st.Problems = append(st.Problems, "there is no "+strings.Join(agent.Programs, " or ")+" in PATH")
	default:
		st.Version = agentVersion(ctx, st.Program)
		if why := untried(&st); why != "" {
			st.Problems = append(st.Problems, why)
		}
	}
	if l, err := new(sessionFlags).load(); err != nil {
		st.Problems = append(st.Problems, "the policy here cannot be used, so no command runs: "+err.Error())
	} else if l.Policy.Disabled {
		st.Problems = append(st.Problems, "the sandbox is switched off here ("+l.Policy.DisabledOrigin.String()+")")
	}
	st.Effective = len(st.Problems) == 0
	return st, nil
}

// untried says that this version of an agent was not tried.
func untried(st *agentState) string {
	switch {
	case st.Tried == "":
		return "no version of " + st.Title + " was tried with cloche"
	case st.Version == "":
		return st.Program + " does not tell its version; " + st.Tried + " was tried"
	case st.Version != st.Tried:
		return "version " + st.Version + " was not tried with cloche; " + st.Tried + " was"
	}
	return ""
}

// versionTimeout is how long a program may take to tell its version.
const versionTimeout = 2 * time.Minute

// agentVersion asks a program for its version, away from the files of any project.
func agentVersion(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(out[:min(len(out), 4096)])) {
		word = strings.Trim(word, "v.,()")
		if strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return ""
}

func (st *agentState) write(b *strings.Builder) {
	words := "not installed"
	if len(st.Scopes) > 0 {
		words = "in force"
		if !st.Effective {
			words = "NOT in force"
		}
		for _, scope := range st.Scopes {
			words += ", for the " + string(scope)
		}
	} else if st.Program == "" {
		words = "not found"
	}
	if st.Tried == "" {
		words += ", not tried with cloche"
	}
	fmt.Fprintf(b, "%-10s %s\n", st.Name, words)
	for _, why := range st.Problems {
		fmt.Fprintf(b, "%-10s   %s\n", "", printable(why))
	}
}
