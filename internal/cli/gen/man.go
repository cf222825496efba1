package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloche-dev/cloche/internal/cli"
)

// pageName is the name of a command's page: "cloche-policy-show".
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manualPage writes the page of one command in the man macros. It has no date
// and no version: the same tree gives the same page.
func manualPage(c *cobra.Command) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"cloche\" \"User commands\"\n", quoted(strings.ToUpper(pageName(c))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", text(pageName(c)), text(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", text(cli.UsageLine(c)))
	b.WriteString(".SH DESCRIPTION\n")
	writeText(&b, c.Long)
	writeFlags(&b, c)
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + text(c.Example) + "\n.fi\n")
	}
	writeSeeAlso(&b, c)
	return []byte(b.String())
}

// writeText writes paragraphs. Indented lines are set as they are.
func writeText(b *strings.Builder, s string) {
	filled := true
	set := func(want bool) {
		if filled != want {
			b.WriteString(map[bool]string{true: ".fi\n", false: ".nf\n"}[want])
			filled = want
		}
	}
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		set(!strings.HasPrefix(line, "  "))
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(text(line) + "\n")
	}
	set(true)
}

func writeFlags(b *strings.Builder, c *cobra.Command) {
	heading := ".SH OPTIONS\n"
	for _, group := range cli.FlagGroups() {
		title := ".SS " + quoted(group) + "\n"
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || cli.GroupOf(f) != group {
				return
			}
			fmt.Fprintf(b, "%s%s.TP\n.B %s\n%s\n", heading, title, text(cli.FlagSyntax(f)), text(f.Usage))
			heading, title = "", ""
		})
	}
}

func writeSeeAlso(b *strings.Builder, c *cobra.Command) {
	var pages []string
	if c.HasParent() {
		pages = append(pages, reference(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, reference(sub))
		}
	}
	b.WriteString(".SH SEE ALSO\n" + strings.Join(pages, ",\n") + "\n")
}

func reference(c *cobra.Command) string { return ".BR " + text(pageName(c)) + " (1)" }

// text escapes what troff would read as its own: backslashes, hyphens that must
// stay hyphens when copied, and a dot or quote at the start of a line.
func text(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func quoted(s string) string { return `"` + text(s) + `"` }
