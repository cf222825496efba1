package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func (a *app) grantsCommand() *cobra.Command {
	c := group("grants", "List and revoke lasting grants",
		`List and revoke what you granted with cloche approve, always or for a time. A grant
is for one workspace.`,
		"  cloche grants list\n  cloche grants revoke k3xq7a")
	c.AddCommand(a.grantsList(), a.grantsRevoke())
	return c
}

func (a *app) grantsList() *cobra.Command {
	var all bool
	c := &cobra.Command{Use: "list", Short: "List the grants", Long: "List the grants of this workspace, oldest first: who gave them, when, and what for.",
		Example: "  cloche grants list --all\n  cloche grants list --json", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.listGrants(all) }}
	boolFlag(c.Flags(), &all, "all", groupOutput, "also list grants of other workspaces")
	a.jsonFlag(c, "print JSON, one grant per line")
	return c
}

func (a *app) listGrants(all bool) error {
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	list, err := grant.OpenStore(dirs.Data).List()
	if err != nil {
		return err
	}
	here, err := workspaceHere()
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(g grant.Grant) bool { return !all && g.Workspace != here })
	return printList(a, list, "nothing is granted in "+printable(here), grantLine)
}

func grantLine(g *grant.Grant) string {
	line := fmt.Sprintf("%s  %s  %s", g.ID, g.String(), g.Made.Local().Format("2006-01-02 15:04"))
	if g.By != "" {
		line += " by " + g.By
	}
	if !g.Expires.IsZero() {
		line += ", until " + g.Expires.Local().Format("2006-01-02 15:04")
	}
	if g.Reason != "" {
		line += ", for: " + g.Reason
	}
	return line
}

// workspaceHere is the workspace for the working folder, without symbolic links. Where there is no project file, the policy is not
// loaded for it, which would take as long as the rest of an agent's hook.
func workspaceHere() (string, error) {
	here, err := workingFolder()
	if err == nil && here != "/" {
		if files, err := config.FindProjects(here, ""); err == nil && len(files) == 0 {
			return config.FindWorkspace(here, "", nil).Dir, nil
		}
	}
	l, err := new(sessionFlags).load()
	if err != nil {
		return "", err
	}
	return l.workspace, nil
}

func (a *app) grantsRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke ID…", Short: "Revoke grants",
		Long:    "Revoke grants. Running commands keep what they have; later ones do not get it.",
		Example: "  cloche grants revoke k3xq7a",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name the grants by their ids; cloche grants list shows them")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.revokeGrants(args) }}
}

func (a *app) revokeGrants(ids []string) error {
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	store := grant.OpenStore(dirs.Data)
	for _, id := range ids {
		g, err := store.Revoke(strings.ToLower(id))
		if err != nil {
			return err
		}
		if g == nil {
			return fmt.Errorf("there is no grant %s; cloche grants list --all shows them", printable(id))
		}
		fmt.Fprintf(a.out, "revoked  %s\n", printable(g.String()))
		if err := record(dirs, audit.Event{Kind: audit.Grant, Subject: g.Subject(), Access: string(g.Access), Verdict: "revoke",
			Rule: g.Origin().Source, Reason: g.Reason, Workspace: g.Workspace}); err != nil {
			return err
		}
	}
	return nil
}

// addGrants adds what was granted in the workspace to the policy. What the
// command line takes away stays away: a grant is older than it.
func (l *loaded) addGrants() error {
	grants, err := grant.OpenStore(l.dirs.Data).List()
	if err != nil || len(grants) == 0 {
		return err
	}
	given := l.Policy
	for _, g := range grants {
		if g.Workspace != l.workspace {
			continue
		}
		if rule := closed(given, &g); rule != "" {
			l.skipped = append(l.skipped, plan.Notice{Kind: plan.NoticeInfo, Origin: g.Origin(), Text: g.String() + " is not given: " + rule + " says otherwise"})
			continue
		}
		l.Policy = l.Policy.With(g.Kept())
	}
	return nil
}

// closed is the rule of the command line that leaves no network for a grant of a
// host, or empty. Of rules about the host or a path, the plan says which holds.
func closed(p policy.Policy, g *grant.Grant) string {
	if o := p.Network.Origin; g.Access == grant.Connect && o.Layer == policy.LayerCommand && p.Network.Mode != policy.NetworkUser {
		return o.String()
	}
	return ""
}
