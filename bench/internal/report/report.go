// Package report turns measurements into medians, ratios, a Markdown table and
// an SVG plot. It measures nothing and asks the machine nothing.
package report

import "time"

// A Report is what one run of the measuring program found.
type Report struct {
	Date time.Time
	// Facts name the machine and the versions, in the order to print them.
	Facts []Fact
	// Skipped are contenders that were not measured. Nothing is left out in
	// silence.
	Skipped []Skip
	Tables  []Table
	// Goals are what is to hold; those that the tables have nothing about are left
	// out.
	Goals []Goal
}

// A Fact is one line about the machine.
type Fact struct {
	Name, Value string
}

// A Skip is a contender that was not measured, and why.
type Skip struct {
	Name, Reason string
}

// A Table holds the contenders of one case, measured in turns.
type Table struct {
	// Scenario is the name by which the table is selected.
	Scenario string
	Title    string
	// Unit says what the values are.
	Unit Unit
	// HigherIsBetter is for throughput; everything else is a cost.
	HigherIsBetter bool
	// Rounds is how often each contender was measured.
	Rounds int
	// Baselines are the contenders that ratios are relative to.
	Baselines []string
	Rows      []Row
}

// A Row is one contender of a table.
type Row struct {
	Name string
	// Own marks cloche's rows.
	Own   bool
	Value Summary
	// Ratios has one entry for each of the table's baselines.
	Ratios []Summary
}

// A Series is the raw samples of one contender, one for each round.
type Series struct {
	Name    string
	Own     bool
	Samples []float64
}

// NewTable fills in the rows of t from the samples. A ratio is taken within a
// round, between two samples that lie close together in time, and only then
// the median over the rounds: what slows a whole round down cancels out.
func NewTable(t Table, all []Series) Table {
	byName := map[string]Series{}
	for _, s := range all {
		byName[s.Name] = s
		t.Rounds = max(t.Rounds, len(s.Samples))
	}
	for _, s := range all {
		row := Row{Name: s.Name, Own: s.Own, Value: Summarize(s.Samples)}
		for _, b := range t.Baselines {
			row.Ratios = append(row.Ratios, Summarize(Ratios(s.Samples, byName[b].Samples)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
