package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says which value of a flag is wrong in the words of the other errors, and
// adds the nearest known flag to the error of an unknown one.
func flagError(c *cobra.Command, err error) error {
	if bad, ok := as[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
	}
	unknown, ok := as[*pflag.NotExistError](err)
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
		if d := distance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of single edits between two words; two neighbours that
// changed places are one.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
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
