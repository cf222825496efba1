package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/keeper"
	"github.com/cloche-dev/cloche/policy"
)

// A state is what cloche would do for a command of this user in this folder.
type state struct {
	Enabled   bool          `json:"enabled"`
	EnabledBy policy.Origin `json:"enabled_by"`
	// Backend would enforce the policy. Available is false if a command would not run:
	// no backend works, or the policy is strict and the backend cannot enforce all of it.
	// Why says why.
	Backend   string   `json:"backend,omitempty"`
	About     string   `json:"backend_description,omitempty"`
	Available bool     `json:"available"`
	Confined  bool     `json:"confined"`
	Why       []string `json:"why,omitempty"`
	Workspace string   `json:"workspace"`
	// WorkspaceWhy says why that is the workspace.
	WorkspaceWhy string      `json:"workspace_why"`
	Network      string      `json:"network"`
	Presets      []string    `json:"presets"`
	Files        []stateFile `json:"files,omitempty"`
	Audit        string      `json:"audit"`
	// Keepers are the processes that keep a warm sandbox for an agent.
	Keepers []int `json:"keepers,omitempty"`
	// Inside says in which sandbox cloche itself runs, if it does.
	Inside string `json:"inside,omitempty"`
}

// A stateFile is a policy file in force.
type stateFile struct {
	Path    string       `json:"path"`
	Layer   policy.Layer `json:"layer"`
	Trusted bool         `json:"trusted"`
	Why     string       `json:"why,omitempty"`
	SHA256  string       `json:"sha256"`
}

func (a *app) statusCommand() *cobra.Command {
	var s sessionFlags
	c := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show which policy, backend and workspace are in force",
		Long: `Show what is in force here: whether the sandbox is on and which file says so, the
backend and whether it works, the workspace, and each policy file and whether it
is trusted.`,
		Example: "  cloche status\n  cloche status --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			st, err := s.state(c.Context())
			if err != nil {
				return err
			}
			return a.printTable(st, st.table())
		},
	}
	s.add(c)
	a.jsonFlag(c, "print the state as JSON")
	return c
}

func (s *sessionFlags) state(ctx context.Context) (*state, error) {
	session, l, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	plan, err := session.Explain()
	if err != nil {
		return nil, err
	}
	p := l.Policy
	st := &state{
		Enabled: !p.Disabled, EnabledBy: p.DisabledOrigin, Audit: auditDir(l.dirs), Inside: insideWords(),
		Workspace: plan.Workspace, WorkspaceWhy: l.why, Network: plan.Network.Mode.String(), Presets: presetsOf(p),
	}
	st.Keepers = keeper.Running(keepersDir(l.dirs))
	st.Backend, err = session.ConfinedBy(ctx)
	unconfined, isUnconfined := errors.AsType[*cloche.UnconfinedError](err)
	gaps, hasGaps := errors.AsType[*cloche.GapError](err)
	switch {
	case err == nil:
		st.Available, st.Confined = true, true
	case isUnconfined:
		st.Backend, st.Available, st.Why = "none", true, []string{unconfined.Reason}
	case hasGaps:
		st.Backend, st.Why = gaps.Backend, errorLines(err)
	default:
		st.Why = errorLines(err)
	}
	st.About = describeBackend(st.Backend)
	for _, f := range l.Files {
		st.Files = append(st.Files, stateFile{f.Path, f.Layer, f.Trusted, f.Why, f.SHA256})
	}
	return st, nil
}

// presetsOf are the presets that rules of the policy come from.
func presetsOf(p policy.Policy) []string {
	names := []string{}
	for _, r := range rulesOf(p) {
		if name, ok := presetOf(r.Origin); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (st *state) table() *table {
	t := &table{}
	t.add("sandbox", st.switchWords())
	t.add("backend", st.backendWords())
	for _, why := range st.Why {
		t.add("", why)
	}
	t.add("workspace", st.Workspace+", "+st.WorkspaceWhy)
	t.add("network", st.Network)
	for _, f := range st.Files {
		words := f.Path
		if !f.Trusted {
			words += " (not trusted)"
		}
		t.add(f.Layer.String()+" file", words)
		if f.Why != "" {
			t.add("", f.Why)
		}
	}
	if len(st.Files) == 0 {
		t.add("files", "none")
	}
	t.add("presets", strings.Join(st.Presets, ", "))
	t.add("audit log", st.Audit)
	if len(st.Keepers) > 0 {
		t.add("warm", "kept for agents by process "+strings.Trim(fmt.Sprint(st.Keepers), "[]"))
	}
	if st.Inside != "" {
		t.add("inside", st.Inside)
	}
	return t
}

func (st *state) switchWords() string {
	words := "on"
	if !st.Enabled {
		words = "off: commands run without it"
	}
	if !st.EnabledBy.IsZero() {
		words += " (" + st.EnabledBy.String() + ")"
	}
	return words
}

// describeBackend says what a backend is.
func describeBackend(name string) string {
	switch name {
	case "native":
		return "namespaces, mounts, Landlock and seccomp, by cloche itself"
	case "bwrap":
		return "the program bubblewrap, with cloche's own filter inside"
	case "landlock":
		return "Landlock and seccomp alone, without namespaces"
	case "seatbelt":
		return "the sandbox of macOS"
	case "none":
		return "no sandbox at all"
	}
	return ""
}

func (st *state) backendWords() string {
	switch {
	case !st.Available && st.Backend != "":
		return st.Backend + ", does not enforce the whole policy: commands do not run"
	case !st.Available:
		return "none works: commands do not run"
	case !st.Confined:
		return "none: commands run without a sandbox"
	default:
		return st.Backend + ", works: " + st.About
	}
}
