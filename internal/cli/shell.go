package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
)

func (a *app) shellCommand() *cobra.Command {
	r := &runFlags{}
	prompt := "(cloche) "
	c := &cobra.Command{
		Use:   "shell [flags]",
		Short: "Start an interactive shell in a sandbox",
		Long: `Start an interactive shell in a sandbox, with the same policy as run.

The shell is the one that $SHELL names, or else /bin/sh. In bash, zsh, fish and
sh the prompt begins with "(cloche)", after their start-up files. --prompt chooses
another text, and an empty one leaves the prompt alone.`,
		Example: `  cloche shell
  cloche shell --preset strict
  cloche shell --prompt ''`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			shell := userShell()
			if isTerminal(a.in) && prompt != "" {
				if filepath.Base(shell) == "zsh" {
					r.files = map[string]string{zshFolder + "/.zshenv": zshEnv, zshFolder + "/.zshrc": zshStart}
				}
				r.prepare = func(cmd *cloche.Cmd) func() { return markPrompt(cmd, shell, prompt) }
			}
			return a.run(c.Context(), r, []string{shell})
		},
	}
	r.add(a, c)
	textFlag(c.Flags(), &prompt, "prompt", "TEXT", groupRun, "begin the prompt with TEXT (default \"(cloche) \"); an empty TEXT leaves it unchanged")
	return c
}

// userShell is the caller's shell, if it is a program.
func userShell() string {
	const fallback = "/bin/sh"
	shell := os.Getenv("SHELL")
	if info, err := os.Stat(shell); err != nil || info.IsDir() || info.Mode()&0o111 == 0 || shell[0] != '/' {
		return fallback
	}
	return shell
}

// promptVariable has the text that prompts begin with.
const promptVariable = "CLOCHE_PROMPT"

// bashStart is read by bash in place of ~/.bashrc. Some prompts are made anew before
// each line, so the mark is, too. Descriptor 3 is what it is read from.
const bashStart = `[ -r ~/.bashrc ] && . ~/.bashrc
__cloche_prompt() { case $PS1 in "$CLOCHE_PROMPT"*) ;; *) PS1=$CLOCHE_PROMPT$PS1 ;; esac; }
case $(declare -p PROMPT_COMMAND 2>/dev/null) in
"declare -a"*) PROMPT_COMMAND+=(__cloche_prompt) ;;
*) PROMPT_COMMAND=${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__cloche_prompt ;;
esac
exec 3<&-
`

// fishStart runs after the files of fish.
const fishStart = `functions -q fish_prompt; and functions -c fish_prompt __cloche_prompt; or function __cloche_prompt; echo '> '; end
function fish_prompt; printf %s $CLOCHE_PROMPT; __cloche_prompt; end`

// zshFolder has start-up files of ours: zsh has no option that names one.
const zshFolder = "/run/cloche/zsh"

// zshScript starts zsh with these files, unless the sandbox cannot show them.
const zshScript = `[ -r ` + zshFolder + `/.zshrc ] && export CLOCHE_ZDOTDIR="${ZDOTDIR-}" ZDOTDIR=` + zshFolder + `
exec "$0"`

// zshEnv reads the user's .zshenv, which may choose the folder of the other files.
const zshEnv = `if [[ -n $CLOCHE_ZDOTDIR ]]; then ZDOTDIR=$CLOCHE_ZDOTDIR; else unset ZDOTDIR; fi
[[ -r ${ZDOTDIR:-$HOME}/.zshenv ]] && . "${ZDOTDIR:-$HOME}/.zshenv"
CLOCHE_ZDOTDIR=${ZDOTDIR-} ZDOTDIR=` + zshFolder + `
`

// zshStart reads the user's .zshrc, and has the mark made last before each line. A system's
// own zshrc may have put the history where this file is.
const zshStart = `if [[ -n $CLOCHE_ZDOTDIR ]]; then ZDOTDIR=$CLOCHE_ZDOTDIR; else unset ZDOTDIR; fi
unset CLOCHE_ZDOTDIR
[[ ${HISTFILE-} = ` + zshFolder + `/* ]] && HISTFILE=${ZDOTDIR:-$HOME}/.zsh_history
[[ -r ${ZDOTDIR:-$HOME}/.zshrc ]] && . "${ZDOTDIR:-$HOME}/.zshrc"
__cloche_prompt() { [[ $PS1 = "$CLOCHE_PROMPT"* ]] || PS1=$CLOCHE_PROMPT$PS1 }
typeset -ga precmd_functions
precmd_functions+=(__cloche_prompt)
`

// markPrompt has a shell begin its prompt with a text. No file of the host is written, and the
// shell reads its own start-up files. A shell that is not known has the text in PS1,
// which these files may replace.
func markPrompt(cmd *cloche.Cmd, shell, prompt string) (done func()) {
	cmd.SetEnv(promptVariable, prompt)
	switch filepath.Base(shell) {
	case "bash":
		start, write, err := os.Pipe()
		if err != nil {
			break // it is only a prompt
		}
		_, _ = io.WriteString(write, bashStart) // less than a pipe holds
		write.Close()
		cmd.ExtraFiles = []*os.File{start}
		cmd.Args = append(cmd.Args, "--rcfile", "/dev/fd/3")
		return func() { start.Close() }
	case "fish":
		cmd.Args = append(cmd.Args, "--init-command", fishStart)
	case "zsh":
		cmd.Args = []string{"/bin/sh", "-c", zshScript, shell}
	default:
		mark := "$ "
		if os.Geteuid() == 0 {
			mark = "# "
		}
		cmd.SetEnv("PS1", prompt+mark)
	}
	return func() {}
}
