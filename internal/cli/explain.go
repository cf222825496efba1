package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
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
	var asArgv, asCalls, asProfile, inForce, forAgent bool
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
				return a.writeInForce()
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
			}
			return a.print(e, e.write)
		},
	}
	s.add(c)
	c.Flags().SetInterspersed(false)
	a.jsonFlag(c, "print the plan as JSON")
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
	return a.printText(text)
}

// enforce asks how the plan would be enforced here.
func (e *explanation) enforce(cmd *cloche.Cmd) {
	launch, err := cmd.Launch()
	if err == nil {
		e.launch, e.Backend, e.Confined, e.Gaps = launch, launch.Backend, launch.Confined, launch.Gaps
		return
	}
	if gap, ok := errors.AsType[*cloche.GapError](err); ok {
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
	return a.printLines(slices.Concat([]string{e.launch.Path}, e.launch.Argv[1:], e.launch.Options))
}

// writeCalls prints the system calls that make the sandbox.
func (a *app) writeCalls(e *explanation) error {
	switch {
	case e.launch == nil:
		return a.refuse(e)
	case e.launch.Program == nil:
		return fmt.Errorf("backend %s starts a program; see --argv, or name another backend with --backend", e.launch.Backend)
	}
	return a.printText(e.launch.Program.String())
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
	return a.printLines(strings.Split(strings.TrimSuffix(text, "\n"), "\n"))
}

func (a *app) refuse(e *explanation) error {
	for _, line := range e.Refused {
		a.words.say(red, line)
	}
	return statusError(statusRefused)
}

// networkTable is what can be reached, and how.
func networkTable(n *plan.Network) *table {
	t := &table{}
	t.add(n.Mode.String(), modeCell(n), n.Origin.String())
	if n.Mode == policy.NetworkUser {
		t.add("link", n.Link.String(), n.LinkOrigin.String(), n.LinkReason)
	}
	for _, h := range n.Allow {
		t.add("allow", h.String(), h.Origin.String(), h.Reason)
	}
	for _, h := range n.Deny {
		t.add("deny", h.String(), h.Origin.String(), h.Reason)
	}
	for _, p := range n.Publish {
		t.add("publish", publishCell(p), p.Origin.String())
	}
	for _, p := range n.Forward {
		t.add("forward", forwardCell(p), p.Origin.String())
	}
	return t
}

// modeCell says what a mode means.
func modeCell(n *plan.Network) string {
	switch n.Mode {
	case policy.NetworkNone, policy.NetworkLoopback:
		return "nothing outside"
	case policy.NetworkUser:
		if len(n.Allow) == 0 {
			return "nothing is allowed"
		}
		return "what is allowed, and nothing else"
	case policy.NetworkHost:
		return "all that the host reaches, and the host itself"
	}
	return ""
}

// publishCell is where the host listens and where that leads.
func publishCell(p plan.Port) string {
	address := p.Address
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	port := strconv.Itoa(p.Host)
	if p.Host == 0 {
		port = "any free port"
	}
	return address + ":" + port + " leads to " + p.Protocol + " " + strconv.Itoa(p.Inside) + " inside"
}

func forwardCell(p plan.Port) string {
	return p.Protocol + " " + strconv.Itoa(p.Inside) + " inside leads to the host's " + p.Address + ":" + strconv.Itoa(p.Host)
}

// socketCell names a socket, and the host's if it is shown elsewhere.
func socketCell(s plan.SocketPath) string {
	cell := s.Path
	if s.Source != s.Path {
		cell += " (" + s.Source + ")"
	}
	if s.Variable != "" {
		cell += " by " + s.Variable
	}
	return cell
}

// writeBus is what of the session bus can be reached.
func (e *explanation) writeBus(b *strings.Builder) {
	if e.Bus == nil {
		return
	}
	t := &table{}
	t.add(e.Bus.Path, "a proxy of "+e.Bus.Address, e.Bus.Origin.String())
	for _, r := range e.Bus.Rules {
		t.add(r.Access, r.String(), r.Origin.String())
	}
	section(b, "session bus", t)
}

// bus lists the rules for the session bus.
func (l *ruleList) bus(b policy.Bus) {
	if !b.Enabled {
		return
	}
	l.set("bus.enabled", true, b.Origin)
	for _, a := range []string{"see", "talk", "own", "call", "broadcast"} {
		for _, r := range b.Rules {
			if r.Access == a {
				l.add("bus."+string(a), r.String(), r.Origin)
			}
		}
	}
}

// busFact is about the proxy of the session bus, which nobody needs who grants
// none.
func busFact() fact {
	const proxy = "xdg-dbus-proxy"
	path := machine.FindProgram(proxy)
	if path == "" {
		return fact{name: "session bus", text: "cannot be granted: the package " + proxy + " is not installed"}
	}
	return fact{name: "session bus", outcome: host.Yes, text: "can be granted, filtered by " + path}
}

// writePatterns lists the rules that hold for every path they match. A preset
// has hundreds of them; a few stand for all, and the preset says the rest.
func (e *explanation) writePatterns(b *strings.Builder) {
	t := &table{}
	for _, group := range patternGroups(e.Globs) {
		first := &group[0]
		if len(group) == 1 {
			t.add(first.Pattern, first.Access.String(), first.Origin.String(), first.Reason)
			continue
		}
		name := strings.TrimPrefix(first.Origin.Source, "preset ")
		t.add(few(patternNames(group)), first.Access.String(), first.Origin.Source, "for all of them: cloche policy presets "+name)
	}
	section(b, "patterns", t)
	e.writeExempt(b)
}

// writeExempt lists the folders in which patterns do not protect.
func (e *explanation) writeExempt(b *strings.Builder) {
	t := &table{}
	var preset []string
	for _, x := range e.Exempt {
		if x.Origin.Layer == policy.LayerPreset {
			preset = append(preset, x.Folder)
		} else {
			t.add(x.Folder, x.Origin.String(), x.Reason)
		}
	}
	if len(preset) > 0 {
		t.add(few(preset), "presets", "what programs fetch and build")
	}
	section(b, "folders in which patterns do not protect", t)
}

// patternGroups puts the patterns of one preset together; every other pattern
// is a group of its own.
func patternGroups(globs []plan.Glob) [][]plan.Glob {
	type key struct {
		origin string
		access policy.Access
		other  string // a pattern that no preset has
	}
	return groupBy(globs, func(g *plan.Glob) key {
		if g.Origin.Layer != policy.LayerPreset {
			return key{g.Origin.String(), g.Access, g.Pattern}
		}
		return key{origin: g.Origin.Source, access: g.Access}
	})
}

// groupBy puts the entries with the same key together, in the order in which the keys
// first appear.
func groupBy[T any, K comparable](list []T, key func(*T) K) [][]T {
	var groups [][]T
	at := map[K]int{}
	for i := range list {
		k := key(&list[i])
		g, ok := at[k]
		if !ok {
			g = len(groups)
			at[k], groups = g, append(groups, nil)
		}
		groups[g] = append(groups[g], list[i])
	}
	return groups
}

// patternNames are the names that patterns match, without the "/**/" that all of
// a preset's begin with.
func patternNames(group []plan.Glob) []string {
	names := make([]string, len(group))
	for i, g := range group {
		names[i] = strings.TrimPrefix(g.Pattern, "/**/")
	}
	return names
}

// few are some of many names, from all over the list.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	some := make([]string, shown)
	for i := range some {
		some[i] = names[i*len(names)/shown]
	}
	return strings.Join(some, ", ") + " and " + strconv.Itoa(len(names)-shown) + " more"
}

// nestedNotice says where the records of a cloche go that runs inside of another
// sandbox: it cannot reach the log outside, which has the command that it is a
// part of.
func (l *loaded) nestedNotice() []plan.Notice {
	if !machine.Nested() {
		return nil
	}
	return []plan.Notice{{Kind: plan.NoticeWarning,
		Text: "inside of another sandbox of cloche: this one can only take away; its audit log is " + auditDir(l.dirs) + " and goes with the sandbox around it"}}
}

// writeInForce prints the policy that this process itself is held to.
func (a *app) writeInForce() error {
	text, err := cloche.InForce()
	if err != nil {
		return err
	}
	return a.print(inForceLines(text), func(b *strings.Builder) { b.WriteString(text) })
}

// An inForceLine is a line of the policy in force.
type inForceLine struct {
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"`
}

func inForceLines(text string) []inForceLine {
	lines := []inForceLine{}
	for line := range strings.Lines(text) {
		rule, origin, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t# ")
		kind, value, _ := strings.Cut(rule, " ")
		lines = append(lines, inForceLine{kind, value, origin})
	}
	return lines
}

// insideWords say in which sandbox this process runs, or nothing.
func insideWords() string {
	if !machine.Nested() {
		return ""
	}
	text, err := cloche.InForce()
	if err != nil {
		return "of another sandbox of cloche, whose policy cannot be read"
	}
	first, _, _ := strings.Cut(text, "\n")
	return "of another sandbox of cloche (" + strings.TrimPrefix(first, "sandbox ") + "): cloche explain --in-force shows its policy"
}
