package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every goal is about a contender and a table that there are, so that none is left
// out in silence when something is renamed.
func TestGoals(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(docsFile)))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	all := goals
	if _, measured, _ := strings.Cut(page, docsChanges.begin); !strings.HasPrefix(strings.TrimSpace(measured), docsChanges.end) {
		all = slices.Concat(goals, changeGoals())
	}
	for _, g := range all {
		if !strings.Contains(page, "\n### "+g.Title+"\n") {
			t.Errorf("%s: no table is called %q", g.What, g.Title)
		}
		if !strings.Contains(page, "| **"+g.Row+"** |") {
			t.Errorf("%s: no contender is called %q", g.What, g.Row)
		}
	}
}
