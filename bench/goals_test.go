package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// Every goal is about a contender and a table that there are, so that none is left
// out in silence when something is renamed.
func TestGoals(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(docsFile)))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var all []report.Goal
	for _, d := range allParts {
		// A part that was not measured yet has no tables.
		if _, measured, _ := strings.Cut(page, d.begin); d == docsMain || !strings.HasPrefix(strings.TrimSpace(measured), d.end) {
			all = append(all, d.goals()...)
		}
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
