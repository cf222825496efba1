package report

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the report as Markdown: the machine, one table for each case,
// and what was skipped.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s.\n\n", r.Date.Format("2006-01-02"))
	writeRow(&b, "machine", "")
	writeRow(&b, "---", "---")
	for _, f := range r.Facts {
		writeRow(&b, f.Name, f.Value)
	}
	writeGoals(&b, r.Goals, r.Tables)
	for i := range r.Tables {
		r.Tables[i].markdown(&b)
	}
	writeSkipped(&b, r.Skipped)
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n", t.Title)
	better := "lower"
	if t.HigherIsBetter {
		better = "higher"
	}
	fmt.Fprintf(b, "Scenario `%s`, %s, %s is better. Ratio: median (quartiles).\n\n", t.Scenario, rounds(t.Rounds), better)
	head, rule := []string{"contender"}, []string{"---"}
	for _, base := range t.Baselines {
		head, rule = append(head, "× "+base), append(rule, "---:")
	}
	writeRow(b, append(head, "median")...)
	writeRow(b, append(rule, "---:")...)
	for _, row := range t.Rows {
		writeRow(b, row.cells(t.Unit)...)
	}
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

func (r Row) cells(unit Unit) []string {
	name := r.Name
	if r.Own {
		name = "**" + name + "**"
	}
	cells := []string{name}
	for _, ratio := range r.Ratios {
		cells = append(cells, ratioCell(ratio))
	}
	return append(cells, unit.Format(r.Value.Median))
}

func ratioCell(s Summary) string {
	if !s.Known() {
		return "–"
	}
	if s.Low == s.High {
		return threeDigits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", threeDigits(s.Median), threeDigits(s.Low), threeDigits(s.High))
}

func writeSkipped(b *strings.Builder, skipped []Skip) {
	if len(skipped) == 0 {
		return
	}
	b.WriteString("\nNot measured:\n\n")
	for _, s := range skipped {
		fmt.Fprintf(b, "- %s: %s\n", s.Name, oneLine(s.Reason))
	}
}

func writeRow(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(oneLine(c), "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}

// oneLine folds every run of white space into one space: a line break would end
// a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
