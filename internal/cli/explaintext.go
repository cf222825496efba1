package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A table is lines of columns that are aligned when it is written. It depends on
// nothing but its content, so that two runs can be compared.
type table struct {
	rows [][]string
}

func (t *table) add(columns ...string) { t.rows = append(t.rows, columns) }

// maxColumn is how wide a column may make all the others wait for it.
const maxColumn = 44

// write writes the rows, each after the indent. A cell that is wider than its
// column pushes the rest of its row to the right.
func (t *table) write(to *strings.Builder, indent string) {
	widths := t.widths()
	for _, row := range t.rows {
		line := indent
		for i, cell := range row {
			cell = printable(cell)
			line += cell
			if i < len(row)-1 {
				line += strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))+2)
			}
		}
		to.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], min(maxColumn, utf8.RuneCountInString(printable(cell))))
		}
	}
	return widths
}

// write writes the plan for people.
func (e *explanation) write(b *strings.Builder) {
	e.writeHead(b)
	e.writePaths(b)
	e.writePatterns(b)
	section(b, "network", networkTable(&e.Network))
	secrets := &table{}
	for i := range e.Secrets {
		s := &e.Secrets[i]
		secrets.add(s.String(), s.Origin.String(), "from "+s.From())
	}
	section(b, "secrets (the command has placeholders)", secrets)
	sockets, variables, limits, gaps, notices := &table{}, &table{}, &table{}, &table{}, &table{}
	for _, s := range e.Sockets {
		sockets.add(socketCell(s), s.Origin.String(), s.Reason)
	}
	if e.Datagrams != nil {
		sockets.add(policy.Datagrams, e.Datagrams.String(), "the command may have unix datagram sockets")
	}
	section(b, "sockets", sockets)
	e.writeBus(b)
	for _, v := range e.Env {
		variables.add(v.Name, v.Origin.String())
	}
	section(b, "variables", variables)
	for _, l := range e.Limits {
		limits.add(l.Name, policy.FormatLimit(l.Name, l.Value), l.Origin.String())
	}
	section(b, "limits", limits)
	for _, g := range e.Gaps {
		gaps.add(g.String())
	}
	section(b, "not enforced here", gaps)
	for _, n := range e.Notices {
		if n.Kind != plan.NoticeSkipped || n.Origin.Layer >= policy.LayerUser {
			notices.add(string(n.Kind), noticeLine(n))
		}
	}
	section(b, "notices", notices)
	if len(e.Refused) > 0 {
		b.WriteString("\na command would not run\n")
		for _, line := range e.Refused {
			fmt.Fprintf(b, "  %s\n", printable(line))
		}
	}
}

func (e *explanation) writeHead(b *strings.Builder) {
	t := &table{}
	t.add("workspace", e.Workspace+", "+e.WorkspaceWhy)
	if e.Inside != e.Workspace {
		t.add("seen as", e.Inside)
	}
	if c := e.Command; c != nil {
		t.add("command", commandLine(c.Args))
		t.add("program", c.Path)
		t.add("starts in", c.Dir)
	}
	if e.Review != nil {
		t.add("review", e.Review.Name+", "+e.Review.Origin.String()+": what is written goes there, and not to the host")
	}
	t.add("enforced by", e.enforcer())
	t.write(b, "")
}

func (e *explanation) enforcer() string {
	switch {
	case e.Backend == "":
		return "nothing: a command would not run"
	case !e.Confined:
		return "nothing: a command would run without a sandbox"
	case e.Strict:
		return e.Backend + ", strict: a rule that cannot be enforced stops the command"
	default:
		return e.Backend + ", best effort: a rule that cannot be enforced is reported"
	}
}

func section(b *strings.Builder, title string, t *table) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	t.write(b, "  ")
}

// writePaths groups the paths by what can be done with them.
func (e *explanation) writePaths(b *strings.Builder) {
	groups := []struct {
		title string
		has   func(plan.Path) bool
	}{
		{"copy-on-write", func(p plan.Path) bool { return e.Reviews(&p) }},
		{"writable", func(p plan.Path) bool { return p.Content == plan.Host && p.Access == policy.Write && !e.Reviews(&p) }},
		{"read-only", func(p plan.Path) bool { return p.Content == plan.Host && p.Access == policy.Read && !p.Protect }},
		{"protected", func(p plan.Path) bool { return p.Protect && p.Access != policy.Hidden }},
		{"private to the command", func(p plan.Path) bool { return p.Content != plan.Host && p.Access != policy.Hidden && !p.Protect }},
		{"hidden", func(p plan.Path) bool { return p.Access == policy.Hidden }},
	}
	for _, g := range groups {
		t := &table{}
		for _, p := range e.Paths {
			if g.has(p) {
				t.add(pathCell(p), p.Origin.String(), p.Reason)
			}
		}
		section(b, g.title, t)
	}
}

// pathCell names a path, and what is there if that is not the same.
func pathCell(p plan.Path) string {
	switch {
	case p.Content == plan.Link:
		return p.Path + " -> " + p.Target
	case p.Content == plan.Text:
		return p.Path + " (text)"
	case p.Content == plan.Host && p.Source != p.Path && p.Source != "":
		return p.Path + " (" + p.Source + ")"
	default:
		return p.Path
	}
}
