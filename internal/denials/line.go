package denials

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Rule returns the rule of a decision, in the words of a policy or as the line of the plan
// that it is.
func Rule(d *plan.Decision) string {
	l := d.Line
	switch {
	case l == nil:
		return strings.TrimSpace(d.Rule + " " + d.Subject)
	case l.Content != plan.Host:
		return l.Access.String() + " " + l.Path + " (" + l.Content.String() + ")"
	}
	return l.Access.String() + " " + l.Path
}

// RuleFrom returns the rule of a decision and where it comes from.
func RuleFrom(d *plan.Decision) string {
	return d.UnlessNotWritable(Rule(d) + ", from " + d.Origin.String())
}

// Line returns a denial as one line: what was denied, by which rule, and the option of
// `cloche run` that allows it.
func Line(d *plan.Denial) string { return d.String() + allowedBy(d.Fix) + remark(&d.Decision) }

func allowedBy(fix []policy.Edit) string {
	if len(fix) == 0 {
		return ""
	}
	return "; allow it with " + runoption.Text(fix...)
}

// Note is what has to be said beside the option: what else it opens, or why there is none.
func Note(d *plan.Decision) string {
	return strings.TrimPrefix(strings.TrimLeft(remark(d), ",; "), "which ")
}

// remark is Note as the end of a sentence. It is empty or begins with a comma or a
// semicolon.
func remark(d *plan.Decision) string {
	narrow := ""
	if d.Narrower != nil {
		narrow = runoption.Text(*d.Narrower)
	}
	switch {
	case d.Outside:
		return "; outside the sandbox the system refuses it, too"
	case len(d.Fix) == 0 && narrow != "":
		return "; make it outside first, then " + narrow + " allows it"
	case len(d.Fix) == 0 && d.NoFix != "":
		return "; " + d.NoFix
	case len(d.Fix) == 0:
		return ""
	case d.Fix[0].Field == "persist" && narrow != "":
		return ", a folder of the sandbox's own; if it is made outside first, " + narrow + " opens that one"
	case d.Fix[0].Field == "persist":
		return ", a folder of the sandbox's own"
	case narrow != "":
		return ", which opens all of that folder; if it is made outside first, " + narrow + " is enough"
	}
	return ""
}
