package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/plan"
)

type checkInput struct {
	Action string `json:"action" jsonschema:"read, write, exec or connect"`
	Target string `json:"target" jsonschema:"a path, the name of a program for exec, or HOST:PORT for connect"`
}

type checkOutput struct {
	Allowed bool       `json:"allowed"`
	Rule    string     `json:"rule,omitempty" jsonschema:"the rule that decides, and where it comes from"`
	Reason  string     `json:"reason,omitempty" jsonschema:"why there is that rule"`
	Request *grantArgs `json:"request_grant,omitempty" jsonschema:"arguments of request_grant that ask for it"`
}

// checkAccess is check_access.
func (c *client) checkAccess(ctx context.Context, _ call, in checkInput) (string, checkOutput, error) {
	s, err := c.sessions.fresh(ctx)
	if err != nil {
		return "", checkOutput{}, err
	}
	defer s.release()
	out, err := c.check(s, in)
	if err != nil {
		return "", checkOutput{}, err
	}
	return out.text(in), out, nil
}

func (c *client) check(s *session, in checkInput) (checkOutput, error) {
	if strings.IndexByte(in.Target, 0) >= 0 || len(in.Target) > maxPath || in.Target == "" {
		return checkOutput{}, errors.New("target is empty, too long or holds a NUL byte; name a path, a program or HOST:PORT")
	}
	target := in.Target
	isPath := in.Action == "read" || in.Action == "write" || strings.HasPrefix(target, "/") || in.Action == "exec" && strings.Contains(target, "/")
	if isPath {
		real, err := c.look(s, target)
		var hidden *hiddenError
		if errors.As(err, &hidden) {
			return c.notVisible(s, in, hidden), nil
		}
		if err != nil {
			return checkOutput{}, err
		}
		target = real
	}
	// Forms stand for what this process knows, such as its variables.
	if isForm(target) {
		return checkOutput{}, fmt.Errorf("target %s holds a sign with a meaning of its own ($, ~, urn:); name it in full", shortened(in.Target))
	}
	d, err := s.Check(plan.Op(in.Action), target)
	if err != nil {
		return checkOutput{}, err
	}
	out := checkOutput{Allowed: d.Allowed, Reason: visible(d.Reason), Rule: visible(denials.RuleFrom(&d))}
	if !d.Allowed {
		out.Request = askFor(d.Fix)
	}
	return out, nil
}

// isForm reports whether a policy would read more into a word than it says.
func isForm(s string) bool {
	return strings.Contains(s, "$") || strings.HasPrefix(s, "~") || strings.HasPrefix(s, "urn:") || s == "cwd" || strings.HasPrefix(s, "cwd/")
}

// notVisible is the answer about something hidden: the rule is that of the first
// folder on the way that cannot be read, whatever lies behind it.
func (c *client) notVisible(s *session, in checkInput, e *hiddenError) checkOutput {
	out := checkOutput{Rule: "it is not visible"}
	if rule := ruleFor(s, "read", e.at); rule != "" {
		out.Rule += ": " + rule
	}
	if in.Action == "read" || in.Action == "write" {
		out.Request = &grantArgs{Path: in.Target, Access: grant.Access(in.Action)}
	}
	return out
}

func (o *checkOutput) text(in checkInput) string {
	verdict := "denied"
	if o.Allowed {
		verdict = "allowed"
	}
	text := verdict + ": " + shortened(in.Action) + " " + shortened(in.Target) + "; rule " + o.Rule
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	if o.Request != nil {
		text += "; if the task needs it: " + toolRequest + " " + o.Request.String()
	}
	return text
}

type explainInput struct {
	Target string `json:"target,omitempty" jsonschema:"a path or host, as it was refused; all recent refusals if not given"`
}

type explainOutput struct {
	Refused []refusal `json:"refused"`
}

// explainDenial is explain_denial.
func (c *client) explainDenial(_ context.Context, _ call, in explainInput) (string, explainOutput, error) {
	out := explainOutput{Refused: c.refusals.about(in.Target)}
	if len(out.Refused) == 0 {
		out.Refused = []refusal{}
		return "no recorded refusal is about that; " + toolCheck + " says whether something would be allowed", out, nil
	}
	var b strings.Builder
	for _, r := range slices.Backward(out.Refused) {
		b.WriteString(r.String() + "\n")
	}
	return b.String(), out, nil
}

// howToAsk is how a model gets more.
const howToAsk = "If the task needs more, call " + toolRequest + " and say why; a person decides."

type policyInput struct{}

type policyOutput struct {
	Workspace string   `json:"workspace"`
	Summary   string   `json:"summary" jsonschema:"what is allowed, in words"`
	Grants    []string `json:"grants,omitempty" jsonschema:"what a person has granted"`
}

// showPolicy is show_policy.
func (c *client) showPolicy(ctx context.Context, _ call, _ policyInput) (string, policyOutput, error) {
	s, err := c.sessions.fresh(ctx)
	if err != nil {
		return "", policyOutput{}, err
	}
	defer s.release()
	p, err := s.Explain()
	if err != nil {
		return "", policyOutput{}, err
	}
	out := policyOutput{Workspace: visible(p.Inside)}
	if out.Summary, err = s.Summary(ctx, howToAsk); err != nil {
		return "", policyOutput{}, err
	}
	for _, g := range c.granted() {
		out.Grants = append(out.Grants, visible(g.String()))
	}
	text := out.Summary
	if len(out.Grants) > 0 {
		text += "Granted: " + strings.Join(out.Grants, "; ") + ".\n"
	}
	return text, out, nil
}

// granted is all that is granted now.
func (c *client) granted() []grant.Grant {
	list, err := c.sessions.lasting()
	if err != nil {
		list = nil // the call that took the session has said so
	}
	return append(list, c.sessions.pendingOnce()...)
}
