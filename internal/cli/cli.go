// Package cli is the command cloche: one file per subcommand, on the public
// library. It has no policy logic of its own. It decides how results are
// printed and with which status cloche ends.
//
// Messages of cloche go to standard error, one line each, prefixed "cloche: ".
// Standard output is for the command that runs, or for the result.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// An app is one invocation of the command.
type app struct {
	in       *os.File
	out, err io.Writer
	words    *words
	args     []string // without the program's name
	// limits are those of the command that runs.
	limits []plan.Limit
	// where is what was loaded for it, and launch what was started.
	where  *loaded
	launch *backend.Launch
	// json: the result is printed as JSON.
	json bool
	// ownTerminal: the command that runs has a terminal of its own.
	ownTerminal bool
	// inspect makes what looks inside TLS; nil in the program that cannot.
	inspect cloche.Inspection
	// serve serves MCP; nil in the program that has no server.
	serve func(context.Context, MCP) error
}

// Main runs the command with the given arguments, which do not include its
// name, and returns the exit status.
func Main(args []string) int {
	return MainWith(args, nil)
}

// MainWith is Main of a program that can look inside TLS.
func MainWith(args []string, inspect cloche.Inspection) int {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, words: newWords(os.Stderr), inspect: inspect}
	return a.main(args)
}

func (a *app) main(args []string) int {
	a.args = args
	err := a.execute(args)
	if err == nil {
		return 0
	}
	if _, silent := errors.AsType[statusError](err); !silent {
		a.words.fail(err)
	}
	return statusOf(err)
}

func (a *app) execute(args []string) error {
	if s, ok := asShell(args); ok {
		return a.agentExec(context.Background(), s)
	}
	if len(args) == 4 && slices.Equal(args[:2], keeperWords) {
		return a.keep(args[2], args[3])
	}
	root := a.root(args)
	root.SetArgs(args)
	return root.ExecuteContext(withInspection(context.Background(), a.inspect))
}

// Root returns the whole tree of commands, for generators of documentation.
func Root() *cobra.Command {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, words: newWords(os.Stderr)}
	return a.root(nil)
}

// A maker builds one subcommand.
type maker struct {
	name string
	make func(*app) *cobra.Command
}

func makers() []maker {
	return []maker{
		{"run", (*app).runCommand},
		{"shell", (*app).shellCommand},
		{"explain", (*app).explainCommand},
		{"check", (*app).checkCommand},
		{"init", (*app).initCommand},
		{"import", (*app).importCommand},
		{"learn", (*app).learnCommand},
		{"verify", (*app).verifyCommand},
		{proberName, (*app).proberCommand},
		{"doctor", (*app).doctorCommand},
		{"status", (*app).statusCommand},
		{"enable", (*app).enableCommand},
		{"disable", (*app).disableCommand},
		{"reset", (*app).resetCommand},
		{"policy", (*app).policyCommand},
		{"approve", (*app).approveCommand},
		{"grants", (*app).grantsCommand},
		{"review", (*app).reviewCommand},
		{"log", (*app).logCommand},
		{"mcp", (*app).mcpCommand},
		{"agent", (*app).agentCommand},
		{"hook", (*app).hookCommand},
		{"version", (*app).versionCommand},
		{"completion", (*app).completionCommand},
	}
}

// needsTree are the first words after which the whole tree has to be there.
var needsTree = []string{"completion", "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}

// root builds the tree. If the first argument names a subcommand, only that one is
// built, so that a run starts fast.
func (a *app) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "cloche",
		Short: "Run commands in a sandbox",
		Long: `cloche runs a command in a sandbox: it can read the machine except your secrets,
write one folder, and reach no network, unless a policy says otherwise.

Where this machine cannot enforce the policy, the command does not run, and
cloche says why.`,
		Example: `  cloche run -- npm test
  cloche explain
  cloche doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownSubcommand,
	}
	var showVersion bool
	root.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return a.printVersion()
		}
		return c.Help()
	}
	boolFlag(root.Flags(), &showVersion, "version", groupOutput, "print the version")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { writeHelp(a.out, c) })
	root.SetUsageFunc(func(c *cobra.Command) error { writeHelp(a.err, c); return nil })
	root.SetHelpCommand(helpCommand(a.out))
	for _, m := range wanted(args) {
		root.AddCommand(m.make(a))
	}
	if len(args) > 0 && isCompletion(args[0]) {
		addCompletions(root)
	}
	return root
}

// wanted are the subcommands that are needed for the arguments.
func wanted(args []string) []maker {
	all := makers()
	if len(args) == 0 || slices.Contains(needsTree, args[0]) {
		return all
	}
	for _, m := range all {
		if m.name == args[0] {
			return []maker{m}
		}
	}
	return all
}

func isCompletion(word string) bool {
	return word == cobra.ShellCompRequestCmd || word == cobra.ShellCompNoDescRequestCmd
}

// knownSubcommand refuses a word that is no subcommand.
func knownSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	if near := nearest(args[0], names); near != "" {
		return fmt.Errorf("there is no command %q; did you mean %q?", c.CommandPath()+" "+args[0], c.CommandPath()+" "+near)
	}
	return fmt.Errorf("there is no command %q; see %s --help", c.CommandPath()+" "+args[0], c.CommandPath())
}

// group returns a command that only holds others.
func group(use, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: knownSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}

// version is set by the linker for a release:
// -ldflags "-X github.com/cloche-dev/cloche/internal/cli.version=v1.2.3".
var version string

// buildVersion is the release, or what the Go toolchain knows of the build.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *app) printVersion() error {
	facts := map[string]string{"version": buildVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
	return a.print(facts, func(b *strings.Builder) {
		fmt.Fprintf(b, "cloche %s (%s, %s/%s)\n", facts["version"], facts["go"], facts["os"], facts["arch"])
	})
}

func (a *app) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of cloche, of the Go toolchain that built it, and the\nsystem it was built for.",
		Example: "  cloche version\n  cloche version --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.printVersion() },
	}
	a.jsonFlag(c, "print JSON")
	return c
}
