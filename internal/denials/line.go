package denials

import (
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Line returns a denial as one line: what was denied, by which rule, and the option of
// `cloche run` that allows it.
func Line(d *plan.Denial) string { return d.String() + allowedBy(d.Fix()) + Remark(d) }

func allowedBy(fix []policy.Edit) string {
	if len(fix) == 0 {
		return ""
	}
	return "; allow it with " + runoption.Text(fix...)
}

// Remark is what has to be said beside the option: what else it opens, or why there is
// none. It is empty or begins with a comma or a semicolon.
func Remark(d *plan.Denial) string {
	fix, narrow := d.Fix(), ""
	if e := d.Narrower(); e != nil {
		narrow = runoption.Text(*e)
	}
	switch {
	case d.Outside:
		return "; outside the sandbox the system refuses it, too"
	case len(fix) == 0 && narrow != "":
		return "; make it outside first, then " + narrow + " allows it"
	case len(fix) == 0:
		if why := d.NoFix(); why != "" {
			return "; " + why
		}
		return ""
	case fix[0].Field == "persist" && narrow != "":
		return ", a folder of the sandbox's own; if it is made outside first, " + narrow + " opens that one"
	case fix[0].Field == "persist":
		return ", a folder of the sandbox's own"
	case narrow != "":
		return ", which opens all of that folder; if it is made outside first, " + narrow + " is enough"
	}
	return ""
}
