package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// writeVerification writes the findings for people, the worst last, where they
// are seen. Unless all are wanted, what presets and cloche itself bring, which is
// hundreds of rules, is told together where it holds or is a known gap. What people
// wrote themselves, and what does not hold, is always told in full.
func (a *app) writeVerification(v *cloche.Verification, all bool) error {
	var b strings.Builder
	held, own := heldLines(v, all)
	colour := wantsColour(a.out)
	heading := outcomeHeading(cloche.OutcomeHeld, colour)
	writeFindings(&b, heading, held)
	if len(held.rows) > 0 {
		heading += ", of your own rules"
	}
	writeFindings(&b, heading, own)
	writeFindings(&b, outcomeHeading(cloche.OutcomeNotTestable, colour), findingLines(withOutcome(v.Findings, cloche.OutcomeNotTestable)))
	writeFindings(&b, outcomeHeading(cloche.OutcomeGap, colour), gapLines(withOutcome(v.Findings, cloche.OutcomeGap), all))
	writeFindings(&b, outcomeHeading(cloche.OutcomeNotHeld, colour), findingLines(withOutcome(v.Findings, cloche.OutcomeNotHeld)))
	fmt.Fprintf(&b, "verified on %s: %d held, %d not held, %d gaps, %d not testable\n", printable(v.Backend),
		v.Count(cloche.OutcomeHeld), v.Count(cloche.OutcomeNotHeld), v.Count(cloche.OutcomeGap), v.Count(cloche.OutcomeNotTestable))
	if len(held.rows) > 0 {
		b.WriteString("--all lists each of them, with where it comes from and what was tried\n")
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// heldLines are the rules that hold: how many of each kind were given, and those that
// are told one by one.
func heldLines(v *cloche.Verification, all bool) (given, single *table) {
	given, single = &table{}, &table{}
	for _, group := range byRule(withOutcome(v.Findings, cloche.OutcomeHeld)) {
		var subjects []string
		count := 0
		for _, f := range group {
			if all || !isGiven(f) {
				addFinding(single, f)
				continue
			}
			count++
			if !slices.Contains(subjects, f.Subject) {
				subjects = append(subjects, f.Subject)
			}
		}
		if count > 0 {
			given.add(group[0].Rule, strconv.Itoa(count), few(subjects))
		}
	}
	return given, single
}

// gapLines are the gaps. Of many that were given and have one cause, one stands for
// the others.
func gapLines(gaps []cloche.Finding, all bool) *table {
	const many = 3
	alike := map[string]int{}
	for _, f := range gaps {
		if isGiven(f) && !all {
			alike[causeOf(f)]++
		}
	}
	t := &table{}
	for _, f := range gaps {
		cause := causeOf(f)
		switch n := alike[cause]; {
		case !isGiven(f) || n >= 0 && n <= many:
			addFinding(t, f)
		case n > many:
			f.Detail += fmt.Sprintf(" (and %d more of %s)", n-1, f.Origin.Source)
			addFinding(t, f)
			alike[cause] = -1 // told
		}
	}
	return t
}

// causeOf is the same for gaps of one rule, of one preset, for which the backend gives
// one reason: it ends the detail, after what was tried.
func causeOf(f cloche.Finding) string {
	return strings.Join([]string{f.Rule, f.Origin.Source, f.Detail[strings.LastIndex(f.Detail, ": ")+1:]}, "\n")
}

// isGiven reports whether a rule is a preset's or cloche's own.
func isGiven(f cloche.Finding) bool { return f.Origin.Layer <= policy.LayerTool }

func withOutcome(findings []cloche.Finding, o cloche.Outcome) []cloche.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f cloche.Finding) bool { return f.Outcome != o })
}

// byRule groups findings by their rule, in the order in which rules first appear.
func byRule(findings []cloche.Finding) [][]cloche.Finding {
	var groups [][]cloche.Finding
	at := map[string]int{}
	for _, f := range findings {
		i, ok := at[f.Rule]
		if !ok {
			i = len(groups)
			at[f.Rule], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func findingLines(findings []cloche.Finding) *table {
	t := &table{}
	for _, f := range findings {
		addFinding(t, f)
	}
	return t
}

func addFinding(t *table, f cloche.Finding) { t.add(f.Rule, f.Subject, f.Origin.String(), f.Detail) }

// writeFindings writes a table with its heading, if there is anything in it.
func writeFindings(b *strings.Builder, heading string, t *table) {
	if len(t.rows) == 0 {
		return
	}
	b.WriteString(heading + "\n")
	t.write(b, "  ")
	b.WriteString("\n")
}

// outcomeHeading is the heading of the findings with an outcome.
func outcomeHeading(o cloche.Outcome, colour bool) string {
	codes := map[cloche.Outcome]string{cloche.OutcomeHeld: green, cloche.OutcomeGap: yellow, cloche.OutcomeNotHeld: red}
	if code := codes[o]; colour && code != "" {
		return code + string(o) + reset
	}
	return string(o)
}
