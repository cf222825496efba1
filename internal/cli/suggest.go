package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError adds the nearest known flag to the error of an unknown one.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
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

// distance is the number of single edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
