package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/starter"
)

func (a *app) initCommand() *cobra.Command {
	var printOnly bool
	c := &cobra.Command{
		Use:   "init [flags] [DIR]",
		Short: "Write a first policy that fits a project",
		Long: `Look at the files of a project and write a .cloche.yaml that fits: presets for its
toolchains, the registries that its files name, and its .env files hidden. Each
entry has a comment. An existing file is never replaced.

What the file hides is hidden at once. What it allows counts after you have read
it and run "cloche policy trust".`,
		Example: "  cloche init --print\n  cloche init ./service",
		Args:    args(0, 1, "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return a.init(dir, printOnly)
		},
	}
	boolFlag(c.Flags(), &printOnly, "print", groupOutput, "print the policy, and write nothing")
	return c
}

func (a *app) init(dir string, printOnly bool) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s: is a file, not a folder; name a folder", dir)
	} else if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such folder; create it, or name another", dir)
	}
	found, err := starter.Inspect(os.DirFS(dir))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", dir, err)
	}
	text := starter.Policy(found)
	if printOnly {
		_, err := a.out.Write(text)
		return err
	}
	file := filepath.Join(dir, config.ProjectFileName)
	if err := writeNew(file, text); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "wrote   %s\n", printable(file))
	for _, t := range found.Tools {
		fmt.Fprintf(a.out, "preset  %s, for %s\n", t.Preset, printable(t.Files[0]))
	}
	for _, name := range found.Variables {
		fmt.Fprintf(a.out, "hidden  %s\n", printable(name))
	}
	for _, h := range found.Doubtful {
		fmt.Fprintf(a.out, "left    %s, which %s names: an address, or no public name\n", printable(h.Name), printable(h.File))
	}
	fmt.Fprintln(a.out, "next    read it, then: cloche policy trust")
	return nil
}

// writeNew writes a file that must not be there yet. A link of that name counts as
// one that is: where it leads is not this command's to write.
func writeNew(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and is not replaced; see what would be written with cloche init --print", file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}
