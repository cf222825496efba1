package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/toggle"
	"github.com/cloche-dev/cloche/policy"
)

// toggleFlags say what is switched.
type toggleFlags struct {
	terminal, project bool
	reason            string
}

func (a *app) enableCommand() *cobra.Command {
	return a.toggleCommand("enable", "Switch the sandbox on again",
		`Switch the sandbox on, for this terminal or for the project, whatever a policy
file says. cloche makes a sandbox first; if that fails, nothing is switched, and
it says why.`,
		"  cloche enable\n  cloche enable --project")
}

func (a *app) disableCommand() *cobra.Command {
	return a.toggleCommand("disable", "Switch the sandbox off, for this terminal or a project",
		`Switch the sandbox off. Commands then run without a sandbox, and cloche says so
each time. The change is recorded in the log. Project files and confined commands
cannot switch: inside a sandbox this command is refused.`,
		"  cloche disable\n  cloche disable --project --reason debugging")
}

func (a *app) resetCommand() *cobra.Command {
	return a.toggleCommand("reset", "Undo enable and disable: the policy decides again",
		`Undo enable or disable, for this terminal or for the project: the policy decides
again. The change is recorded in the log. Inside a sandbox this command is
refused.`,
		"  cloche reset\n  cloche reset --project")
}

func (a *app) toggleCommand(verb, short, long, example string) *cobra.Command {
	var f toggleFlags
	c := &cobra.Command{
		Use: verb + " [flags]", Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if verb == "enable" {
				return a.enable(c.Context(), &f)
			}
			return a.loosen(verb, &f)
		},
	}
	boolFlag(c.Flags(), &f.terminal, "terminal", groupRun, "for everything in this terminal, until its shell ends (the default)")
	boolFlag(c.Flags(), &f.project, "project", groupRun, "for this workspace, until it is switched again")
	textFlag(c.Flags(), &f.reason, "reason", "TEXT", groupRun, "a note for the log")
	return c
}

// loosen makes a switch after which there may be no sandbox.
func (a *app) loosen(verb string, f *toggleFlags) error {
	if machine.Nested() {
		return fmt.Errorf("cloche %s: this is inside of a sandbox, which cannot be switched off from there; run it outside", verb)
	}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	return a.flip(dirs, f, verb)
}

// enable switches on, after a sandbox has really been made.
func (a *app) enable(ctx context.Context, f *toggleFlags) error {
	l, err := new(sessionFlags).load()
	if err != nil {
		return err
	}
	l.Policy = l.Policy.With(policy.Set("enabled", "true"))
	session, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	name, err := session.ConfinedBy(ctx)
	if err != nil {
		return errors.New("the sandbox stays as it is: " + oneLine(err))
	}
	if err := a.flip(l.dirs, f, "enable"); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "backend  %s, works\n", name)
	return nil
}

// flip records the switch, and then makes it: what cannot be recorded does not
// happen.
func (a *app) flip(dirs host.Dirs, f *toggleFlags, verb string) error {
	sw := toggle.Switch{Off: verb == "disable", By: whoDecides(), Made: time.Now().UTC().Truncate(time.Second), Reason: f.reason}
	var err error
	if sw.Scope, sw.Key, err = f.key(); err != nil {
		return err
	}
	if err := record(dirs, audit.Event{Kind: audit.Toggle, Subject: string(sw.Scope) + " " + sw.Key, Verdict: verb, Reason: f.reason}); err != nil {
		return fmt.Errorf("nothing is switched: %w", err)
	}
	store := toggle.Open(dirs.State)
	words := map[string]string{"enable": "on", "disable": "off: commands run without it", "reset": "as the policy says"}[verb]
	if verb == "reset" {
		err = store.Clear(sw.Scope, sw.Key)
	} else {
		err = store.Set(sw)
	}
	if err != nil {
		return err
	}
	where := "this terminal"
	if sw.Scope == toggle.Project {
		where = printable(sw.Key)
	}
	fmt.Fprintf(a.out, "sandbox  %s, for %s\n", words, where)
	return a.tellOther(store, sw, verb)
}

// tellOther says if something else that was switched counts here: for a project, that
// the terminal was switched the other way; after a reset, what is switched still.
func (a *app) tellOther(store *toggle.Store, sw toggle.Switch, verb string) error {
	now, err := switchIn(store, os.Getpid(), workspaceHere)
	if err != nil || now == nil {
		return err
	}
	state, opposite := "on", "disable"
	if now.Off {
		state, opposite = "off", "enable"
	}
	by := printable(now.Origin().String())
	switch {
	case verb == "reset":
		fmt.Fprintf(a.out, "but      it stays %s here (%s); cloche reset --%s undoes that\n", state, by, now.Scope)
	case sw.Scope == toggle.Project && now.Off != sw.Off:
		fmt.Fprintf(a.out, "but      in this terminal it stays %s (%s); cloche %s switches that\n", state, by, opposite)
	}
	return nil
}

// key is what is switched.
func (f *toggleFlags) key() (toggle.Scope, string, error) {
	switch {
	case f.terminal && f.project:
		return "", "", errors.New("--terminal and --project are both given; keep one of them")
	case f.project:
		dir, err := workspaceHere()
		return toggle.Project, dir, err
	}
	key, err := toggle.CurrentSession()
	return toggle.Terminal, key, err
}

// applySwitch applies what was switched for the terminal of a process or this workspace.
func (l *loaded) applySwitch(process int) error {
	sw, err := switchIn(toggle.Open(l.dirs.State), process, func() (string, error) { return l.workspace, nil })
	if err == nil && sw != nil {
		l.Policy = l.Policy.With(sw.Option())
	}
	return err
}

// switchIn is what was switched for the terminal of a process or a workspace; nil if nothing was.
func switchIn(store *toggle.Store, process int, workspace func() (string, error)) (*toggle.Switch, error) {
	return store.For(func() (session, project string) {
		// What cannot be found out can have nothing switched for it.
		session, _ = toggle.SessionOf(process)
		project, _ = workspace()
		return session, project
	})
}
