package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// actions are what can be checked.
var actions = []string{"read", "write", "exec", "connect"}

func (a *app) checkCommand() *cobra.Command {
	var s sessionFlags
	c := &cobra.Command{
		Use:   "check [flags] read|write|exec|connect X",
		Short: "Say whether an operation would be allowed, and why",
		Long: `Say whether a command could read, write or execute the path X, or connect to X:
HOST:PORT, udp://HOST:PORT, icmp://HOST, a request such as GET http://HOST/PATH,
or a unix socket (its path, or @NAME). Nothing is run, opened or looked up. A
relative path is relative to the workspace.

The exit status is 0 if it is allowed, 1 if it is denied, 125 if cloche cannot
tell.`,
		Example: `  cloche check read ~/.ssh/id_ed25519
  cloche check write ./out/report.txt
  cloche check connect example.com:443 --json
  cloche check connect POST http://example.com/v1/jobs
  cloche check connect GET https://example.com/v1/jobs`,
		ValidArgs: actions,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 && slices.Contains(actions, args[0]) || len(args) == 3 && args[0] == "connect" {
				return nil
			}
			return fmt.Errorf("write cloche check ACTION X, where ACTION is one of %s", strings.Join(actions, ", "))
		},
		RunE: func(c *cobra.Command, args []string) error {
			session, _, err := s.open(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = session.Close() }()
			d, err := session.Check(plan.Op(args[0]), strings.Join(args[1:], " "))
			if err != nil {
				return err
			}
			return a.sayDecision(args[0], strings.Join(args[1:], " "), &d, reviewOf(session, &d))
		},
	}
	s.add(c)
	a.jsonFlag(c, "print the decision as JSON")
	return c
}

// reviewOf returns the name of the review that has what a command writes by a decision, or nothing.
func reviewOf(s *cloche.Session, d *plan.Decision) string {
	p, err := s.Explain()
	if err != nil || !d.Allowed || !d.Op.Changes() || p.Review == nil {
		return ""
	}
	inside, _ := p.InsidePath(d.Path)
	if line := p.Lookup(inside); p.Reviews(&line) {
		return p.Review.Name
	}
	return ""
}

// sayDecision prints a decision and ends with its status. review is the review that has the change, if any.
func (a *app) sayDecision(action, target string, d *plan.Decision, review string) error {
	out := struct {
		Action   string        `json:"action"`
		Target   string        `json:"target"`
		Allowed  bool          `json:"allowed"`
		Resolved string        `json:"resolved,omitempty"` // the target after its symbolic links
		Rule     string        `json:"rule"`
		Reason   string        `json:"reason,omitempty"`
		Origin   policy.Origin `json:"origin"`
		Fix      []policy.Edit `json:"fix,omitempty"`
		Note     string        `json:"note,omitempty"`
		Review   string        `json:"review,omitempty"` // the review that has what is written
		Grant    string        `json:"grant,omitempty"`
	}{Action: action, Target: target, Allowed: d.Allowed, Rule: denials.Rule(d), Reason: d.Reason, Origin: d.Origin,
		Fix: d.Fix, Note: denials.Note(d), Review: review, Grant: runoption.Text(d.Fix...)}
	if d.Host == "" {
		out.Resolved = d.Path
	}
	t := &table{}
	t.add(verdict(d.Allowed), action+" "+target)
	if out.Resolved != "" && out.Resolved != target {
		t.add("which is", out.Resolved)
	}
	if d.NotWritable() {
		t.add("rule", denials.RuleFrom(d))
	} else {
		t.add("rule", out.Rule)
		t.add("from", d.Origin.String())
	}
	if d.Reason != "" {
		t.add("because", d.Reason)
	}
	if out.Grant != "" {
		t.add("to allow", out.Grant)
	}
	if review != "" {
		t.add("goes to", "the review "+review+", not the host: cloche review")
	}
	if out.Note != "" {
		t.add("note", out.Note)
	}
	return deniedUnless(d.Allowed, a.printTable(out, t))
}
