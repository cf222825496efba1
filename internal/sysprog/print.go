package sysprog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The columns are as wide as their content, up to these limits.
const (
	widestCall  = 104
	widestLabel = 40
)

// String prints the program, one line for each step: its number, the call as strace would show
// it, its purpose, and the rule behind it.
func (p *Program) String() string {
	used := p.usedResults()
	calls, labels := make([]string, len(p.Steps)), make([]string, len(p.Steps))
	for i := range p.Steps {
		calls[i], labels[i] = p.format(i, used[i]), visible(p.Steps[i].Label)
	}
	callWidth, labelWidth := width(calls, widestCall), width(labels, widestLabel)
	numberWidth := len(strconv.Itoa(len(p.Steps) - 1))
	var out strings.Builder
	for i := range p.Steps {
		line := fmt.Sprintf("%*d  %-*s  %-*s", numberWidth, i, callWidth, calls[i], labelWidth, labels[i])
		if o := p.Steps[i].Origin; !o.IsZero() {
			line += "  " + visible(o.String())
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// width returns the length of the longest text, at most most.
func width(list []string, most int) (n int) {
	for _, s := range list {
		n = max(n, utf8.RuneCountInString(s))
	}
	return min(n, most)
}

// usedResults reports for each step whether a later one uses its result.
func (p *Program) usedResults() []bool {
	used := make([]bool, len(p.Steps))
	for i := range p.Steps {
		for _, a := range p.Steps[i].Args {
			if a.Kind == KindResult && a.Value < uint64(len(used)) {
				used[a.Value] = true
			}
		}
	}
	return used
}

// format prints one step as strace would print the call.
func (p *Program) format(i int, used bool) string {
	s := &p.Steps[i]
	var text string
	switch s.Call {
	case macroCloseOthers:
		text = "close_range(all but " + p.join(append(slices.Clone(s.Args), Named(0, "files of the program"))) + ")"
	case macroDropBounding:
		text = "prctl(PR_CAPBSET_DROP, all but " + p.join(s.Args) + ")"
	case macroSameFile:
		text = "statx(" + p.join(s.Args) + ": the same file)"
	default:
		text = visible(s.Call) + "(" + p.join(s.Args) + ")"
	}
	if used {
		text += " = $" + strconv.Itoa(i)
	} else if s.Want != nil {
		text += " = " + number(*s.Want)
	}
	for n, e := range s.Ignore {
		text += [...]string{" or ", ", "}[min(n, 1)] + e.String()
	}
	return text
}

func (p *Program) join(args []Arg) string {
	parts := make([]string, len(args))
	for i := range args {
		parts[i] = p.formatArg(&args[i])
	}
	return strings.Join(parts, ", ")
}

func (p *Program) formatArg(a *Arg) string {
	switch a.Kind {
	case KindString:
		return quote(a.Text)
	case KindVector:
		return quotedList(a.List)
	case KindEnviron:
		return "environ"
	case KindArgv:
		return "argv"
	case KindText:
		return "<" + p.textName(a.Value) + ">"
	case KindResult:
		return "$" + strconv.FormatUint(a.Value, 10)
	case KindFile:
		return "<" + p.fileName(a.Value) + ">"
	case KindSync:
		return [...]string{"<sync>", "<parent's sync>"}[a.Value&1]
	case KindOutput:
		return fmt.Sprintf("<output of %d bytes>", a.Value)
	case KindConst, KindOpenFlags, KindOpenHow, KindBytes, KindFilter, KindMessage:
	}
	switch {
	case a.note != nil:
		return visible(a.note())
	case a.Kind == KindBytes:
		return quote(a.Text)
	case a.Kind == KindFilter, a.Kind == KindOpenHow, a.Kind == KindMessage:
		return fmt.Sprintf("%d bytes", len(a.Text))
	}
	return number(a.Value)
}

func (p *Program) fileName(i uint64) string {
	if i < uint64(len(p.Files)) {
		return visible(p.Files[i])
	}
	return "file " + strconv.FormatUint(i, 10)
}

func (p *Program) textName(i uint64) string {
	if i < uint64(len(p.Texts)) {
		return visible(p.Texts[i])
	}
	return "text " + strconv.FormatUint(i, 10)
}

// quote quotes a string so that it is one word on one line, whatever it contains.
func quote(s string) string { return strconv.Quote(s) }

// quotedList prints a vector of strings.
func quotedList(list []string) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = quote(s)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// visible escapes characters that would break the line or control the terminal.
func visible(s string) string {
	quoted := strconv.Quote(s)
	if len(quoted) == len(s)+2 {
		return s
	}
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
