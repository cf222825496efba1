package seatbelt

import (
	"strings"

	"github.com/cloche-dev/cloche/plan"
)

// tmpParam is the profile parameter for the private folder of a run.
const tmpParam = "CLOCHE_TMP"

// A compiler writes one profile.
type compiler struct {
	plan  *plan.Plan
	lines []line
	out   strings.Builder
	err   error
}

// The groups of operations of each access. file-map-executable is the loading of code, which
// newer systems check separately from reading.
var (
	reading = []string{"file-read*", "file-map-executable", "process-exec"}
	writing = []string{"file-write*"}
	both    = []string{"file-read*", "file-map-executable", "process-exec", "file-write*"}
)

func (c *compiler) compile() {
	c.line("(version 1)")
	c.line("(deny default)")
	c.processes()
	c.services()
	c.paths()
	c.privateTmp()
	c.ancestors()
	c.pins()
	c.devices()
	c.setID()
	c.network()
}

func (c *compiler) line(s string) { c.out.WriteString(s + "\n") }

// section begins a part of the profile, with a comment.
func (c *compiler) section(reason string) { c.line("\n; " + reason) }

// rule writes one rule. Without filters the rule would apply to everything, so it writes
// nothing then.
func (c *compiler) rule(action string, operations []string, filters ...string) {
	if len(filters) == 0 {
		return
	}
	head := "(" + action + " " + strings.Join(operations, " ")
	if len(filters) == 1 {
		c.line(head + " " + filters[0] + ")")
		return
	}
	c.line(head)
	for _, f := range filters[:len(filters)-1] {
		c.line("  " + f)
	}
	c.line("  " + filters[len(filters)-1] + ")")
}

// always writes rules without filters, which apply to everything.
func (c *compiler) always(action string, operations ...string) {
	for _, o := range operations {
		c.line("(" + action + " " + o + ")")
	}
}

// quoted is quote for a text from outside. A NUL byte is an error.
func (c *compiler) quoted(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		c.err = errNUL
	}
	return quote(s)
}

func (c *compiler) literal(p string) string { return "(literal " + c.quoted(p) + ")" }
func (c *compiler) subpath(p string) string { return "(subpath " + c.quoted(p) + ")" }
func (c *compiler) regex(e string) string   { return "(regex " + c.quoted(e) + ")" }

func all(filters ...string) string {
	if len(filters) == 1 {
		return filters[0]
	}
	return "(require-all " + strings.Join(filters, " ") + ")"
}

func anyOf(filters ...string) string {
	if len(filters) == 1 {
		return filters[0]
	}
	return "(require-any " + strings.Join(filters, " ") + ")"
}

func not(filter string) string { return "(require-not " + filter + ")" }

// privateTmp allows the folder that is made for the run. The folder itself cannot be moved,
// because cloche removes it by its name.
func (c *compiler) privateTmp() {
	c.section("temporary files: a folder of the run's own, which TMPDIR names")
	c.rule("allow", both, `(subpath (param "`+tmpParam+`"))`)
}
