package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The page that shows the last measurement, from the top of the source tree,
// and the plot beside it.
const (
	docsFile = "docs/reference/measurements.md"
	docsPlot = "performance.svg"
)

// A docsPart is a part of the page: what stands between its two marks is replaced.
type docsPart struct {
	begin, end string
	scenario   string // the only one that it has; empty: all that have no part of their own
}

// Some scenarios are measured in a run of their own: changes as an ordinary user, agent where the
// coding agents are installed.
var (
	docsMain    = docsPart{"<!-- bench:begin -->", "<!-- bench:end -->", ""}
	docsChanges = docsPart{"<!-- bench:changes:begin -->", "<!-- bench:changes:end -->", changesName}
	docsAgent   = docsPart{"<!-- bench:agent:begin -->", "<!-- bench:agent:end -->", agentName}
	docsReview  = docsPart{"<!-- bench:review:begin -->", "<!-- bench:review:end -->", reviewName}
	allParts    = []docsPart{docsMain, docsChanges, docsAgent, docsReview}
)

func (d docsPart) has(scenario string) bool {
	if d.scenario != "" {
		return scenario == d.scenario
	}
	return !slices.ContainsFunc(allParts, func(other docsPart) bool { return other.scenario == scenario })
}

// goals are the goals about the tables of the part.
func (d docsPart) goals() []report.Goal {
	switch d.scenario {
	case changesName:
		return changeGoals()
	case agentName:
		return agentGoals
	case reviewName:
		return reviewGoals()
	}
	return mainGoals
}

func allGoals() (all []report.Goal) {
	for _, d := range allParts {
		all = append(all, d.goals()...)
	}
	return all
}

// docsParts are the parts that a run of the chosen scenarios replaces. A run of some of a part
// would remove the tables of the others.
func docsParts(chosen []string) ([]docsPart, error) {
	var parts []docsPart
	for _, d := range allParts {
		var all []string
		for _, s := range scenarios() {
			if d.has(s.name) {
				all = append(all, s.name)
			}
		}
		missing := func(name string) bool { return !slices.Contains(chosen, name) }
		switch {
		case !slices.ContainsFunc(all, missing):
			parts = append(parts, d)
		case slices.ContainsFunc(chosen, d.has):
			return nil, fmt.Errorf("-update-docs would remove the tables of scenarios that are not measured: measure all with -scenarios %s", strings.Join(all, ","))
		}
	}
	return parts, nil
}

// updateDocs puts the report into parts of the page.
func updateDocs(file string, parts []docsPart, r *report.Report) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page := string(data)
	for i, d := range parts {
		var text bytes.Buffer
		one := *r
		one.Tables = slices.DeleteFunc(slices.Clone(r.Tables), func(t report.Table) bool { return !d.has(t.Scenario) })
		if i > 0 {
			one.Skipped = nil // the first part lists them
		}
		if d == docsMain {
			fmt.Fprintf(&text, "![Ratios to the baseline of each group](%s)\n\n", docsPlot)
		}
		if err := one.Markdown(&text); err != nil {
			return err
		}
		if page, err = d.replace(page, text.String()); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// replace replaces what stands between the two marks of the part.
func (d docsPart) replace(page, text string) (string, error) {
	before, rest, ok := strings.Cut(page, d.begin+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q; add it where the table belongs", d.begin)
	}
	_, after, ok := strings.Cut(rest, d.end)
	if !ok {
		return "", fmt.Errorf("there is no line %q after %q; add it", d.end, d.begin)
	}
	if text != "" {
		text = "\n" + strings.Trim(text, "\n") + "\n\n"
	}
	return before + d.begin + "\n" + text + d.end + after, nil
}

func writePlot(file string, r *report.Report) error {
	var svg bytes.Buffer
	if err := r.SVG(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, svg.Bytes(), 0o644)
}
