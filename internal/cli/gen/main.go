// Command gen writes the manual pages and the completion scripts of cloche from
// its tree of commands. It is apart from the product, which links none of it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/cli"
)

func main() {
	man := flag.String("man", "", "the folder for manual pages")
	completions := flag.String("completions", "", "the folder for completion scripts")
	flag.Parse()
	if err := run(*man, *completions); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(man, completions string) error {
	if man == "" || completions == "" {
		return fmt.Errorf("both -man and -completions are needed")
	}
	scripts, err := completionScripts()
	if err != nil {
		return err
	}
	if err := writeFiles(man, manualPages()); err != nil {
		return err
	}
	return writeFiles(completions, scripts)
}

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manualPages returns a page for each command, by file name.
func manualPages() map[string][]byte {
	pages := map[string][]byte{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		pages[pageName(c)+".1"] = manualPage(c)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(cli.Root())
	return pages
}

// completionScripts returns the script of each shell, by the name that the
// shell looks for.
func completionScripts() (map[string][]byte, error) {
	var bash, zsh, fish bytes.Buffer
	root := cli.Root()
	if err := root.GenBashCompletionV2(&bash, true); err != nil {
		return nil, err
	}
	if err := root.GenZshCompletion(&zsh); err != nil {
		return nil, err
	}
	if err := root.GenFishCompletion(&fish, true); err != nil {
		return nil, err
	}
	return map[string][]byte{"cloche.bash": bash.Bytes(), "_cloche": zsh.Bytes(), "cloche.fish": fish.Bytes()}, nil
}
