package report

import (
	"fmt"
	"slices"
	"strings"
)

// A Goal is a ratio that a contender is to stay at or below.
type Goal struct {
	// What says what is measured, in words.
	What string
	// Title is that of the table, Row the contender, and Baseline what it is compared
	// with.
	Title, Row, Baseline string
	Most                 float64
}

// measured finds the ratio that a goal is about.
func (g *Goal) measured(tables []Table) (Summary, bool) {
	for i := range tables {
		t := &tables[i]
		base := slices.Index(t.Baselines, g.Baseline)
		row := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == g.Row })
		if base >= 0 && row >= 0 && t.Title == g.Title {
			ratio := t.Rows[row].Ratios[base]
			return ratio, ratio.Known()
		}
	}
	return Summary{}, false
}

// writeGoals writes those that were measured.
func writeGoals(b *strings.Builder, goals []Goal, tables []Table) {
	var rows [][]string
	for i := range goals {
		g := &goals[i]
		ratio, ok := g.measured(tables)
		if !ok {
			continue
		}
		verdict := "yes"
		if ratio.Median > g.Most {
			verdict = "**no**"
		}
		rows = append(rows, []string{g.What, fmt.Sprintf("%s × %s", threeDigits(g.Most), g.Baseline), ratioCell(ratio), verdict})
	}
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n### Goals\n\nWhat cloche is to cost at most, and what it did in this run.\n\n")
	writeRow(b, "", "at most", "measured", "held")
	writeRow(b, "---", "---:", "---:", "---")
	for _, row := range rows {
		writeRow(b, row...)
	}
}
