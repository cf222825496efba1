package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The headings of flags, in the order of help texts.
const (
	groupPolicy  = "Policy"
	groupPaths   = "Paths"
	groupNetwork = "Network"
	groupEnv     = "Environment"
	groupLimits  = "Limits"
	groupBackend = "Enforcement"
	groupRun     = "Running"
	groupOutput  = "Output"
	groupOther   = "Other"
)

// FlagGroups returns the headings in their order.
func FlagGroups() []string {
	return []string{groupPolicy, groupPaths, groupNetwork, groupEnv, groupLimits, groupBackend, groupRun, groupOutput, groupOther}
}

// GroupOf returns the heading of a flag.
func GroupOf(f *pflag.Flag) string {
	if g, ok := f.Value.(interface{ heading() string }); ok {
		return g.heading()
	}
	return groupOther
}

// A flagGroup is the heading that a flag is listed under, as a part of its value.
type flagGroup string

func (g flagGroup) heading() string { return string(g) }

// FlagSyntax returns a flag as it is typed, for example "-n, --lines N".
func FlagSyntax(f *pflag.Flag) string {
	s := "--" + f.Name
	if f.Shorthand != "" {
		s = "-" + f.Shorthand + ", " + s
	}
	switch placeholder := f.Value.Type(); {
	case placeholder == "bool":
	case strings.HasPrefix(placeholder, "["): // it may be left out
		s += placeholder
	default:
		s += " " + placeholder
	}
	return s
}

// helpCommand is "cloche help COMMAND", in the place of the library's own, which
// takes an unknown command for a success.
func helpCommand(to io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND…]",
		Short:   "Help about a command",
		Long:    "Print the help of a command.",
		Example: "  cloche help run\n  cloche help policy trust",
		Hidden:  true,
		RunE: func(c *cobra.Command, args []string) error {
			at, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return knownSubcommand(at, rest)
			}
			at.InitDefaultHelpFlag()
			writeHelp(to, at)
			return nil
		},
	}
}

// writeHelp writes the help of a command: what it is for, how it is called,
// examples, subcommands, and the flags under their headings.
func writeHelp(to io.Writer, c *cobra.Command) {
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", text, UsageLine(c))
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	writeSubcommands(&b, c)
	for _, name := range FlagGroups() {
		writeFlags(&b, c, name)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nSee `%s COMMAND --help` for one command.\n", c.CommandPath())
	}
	_, _ = io.WriteString(to, b.String())
}

// UsageLine is how a command is called.
func UsageLine(c *cobra.Command) string {
	if c.HasAvailableSubCommands() {
		return c.CommandPath() + " COMMAND"
	}
	line := c.Use
	if c.HasParent() {
		line = c.Parent().CommandPath() + " " + line
	}
	return line
}

func writeSubcommands(b *strings.Builder, c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nCommands:\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
}

// flagColumn is where the words about a flag start; textWidth is how wide they
// may get, so that a terminal of 80 columns holds both.
const (
	flagColumn = 26
	textWidth  = 52
)

func writeFlags(b *strings.Builder, c *cobra.Command, name string) {
	heading := "\n" + name + ":\n"
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || GroupOf(f) != name {
			return
		}
		b.WriteString(heading)
		heading = ""
		syntax := "  " + FlagSyntax(f)
		if len(syntax) >= flagColumn {
			b.WriteString(syntax + "\n")
			syntax = ""
		}
		for i, line := range wrap(f.Usage, textWidth) {
			if i > 0 {
				syntax = ""
			}
			fmt.Fprintf(b, "%-*s%s\n", flagColumn, syntax, line)
		}
	})
}

// wrap breaks a text at spaces into lines of a width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
