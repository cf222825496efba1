package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cloche-dev/cloche/internal/spelling"
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
	if v, ok := f.Value.(*flagValue); ok {
		return v.group
	}
	return groupOther
}

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
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", cmp.Or(c.Long, c.Short), UsageLine(c))
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

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Print a script that teaches a shell to complete cloche's commands and flags.

  bash  cloche completion bash > ~/.local/share/bash-completion/completions/cloche
  zsh   cloche completion zsh > "${fpath[1]}/_cloche"
  fish  cloche completion fish > ~/.config/fish/completions/cloche.fish`,
		Example:               "  cloche completion bash",
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one shell: bash, zsh or fish")
			}
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return fmt.Errorf("there is no completion script for %q; known are bash, zsh and fish", args[0])
		},
	}
}

// addCompletions makes the values of flags complete. It is only called when a
// shell asks.
func addCompletions(root *cobra.Command) {
	for _, c := range root.Commands() {
		addCompletions(c)
	}
	root.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(*flagValue); ok && v.values != nil {
			// It fails only for a flag that is not there.
			_ = root.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.values(), cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// flagError says which value of a flag is wrong in the words of the other errors, and
// adds the nearest known flag to the error of an unknown one.
func flagError(c *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("there is no flag -%s; see %s --help", name, c.CommandPath())
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearest(name, names); near != "" {
		return fmt.Errorf("there is no flag --%s; did you mean --%s?", name, near)
	}
	return fmt.Errorf("there is no flag --%s; see %s --help", name, c.CommandPath())
}

// nearest returns the name that was probably meant, or "".
func nearest(word string, names []string) string {
	best, least := "", len(word)/2+1
	for _, n := range names {
		if strings.HasPrefix(n, word) && len(word) > 1 {
			return n
		}
		if d := spelling.Distance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// noArgs refuses arguments of a command that takes none.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no argument, and %q is one; see %s --help", c.CommandPath(), args[0], c.CommandPath())
}

// args refuses too few or too many arguments, which are called what in the help.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing; write %s %s", what, c.CommandPath(), what)
		case len(args) > most:
			return fmt.Errorf("%q is one argument too many; write %s %s", args[most], c.CommandPath(), what)
		}
		return nil
	}
}
