package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
				return fmt.Errorf("name one shell: bash, zsh or fish")
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
	complete := func(f *pflag.Flag, values []string) {
		// It fails only for a flag that is not there.
		_ = root.RegisterFlagCompletionFunc(f.Name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values, cobra.ShellCompDirectiveNoFileComp
		})
	}
	root.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case *policyValue:
			if v.spec.values != nil {
				complete(f, v.spec.values())
			} else if !strings.HasPrefix(v.spec.placeholder, "PATH") && v.spec.placeholder != "SPEC" {
				complete(f, nil)
			}
		case *textValue:
			if f.Name == "tty" {
				complete(f, []string{"auto", "always", "never"})
			}
		}
	})
}
