package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sample is a report with everything that a writer has to handle.
func sample() *Report {
	cost := NewTable(Table{Scenario: "one-shot", Title: "Starting `true`", Unit: Seconds, Baselines: []string{"bwrap", "gone"}}, []Series{
		{Name: "bwrap", Samples: []float64{0.010, 0.012, 0.010}},
		{Name: "fast", Own: true, Samples: []float64{0.001, 0.0012, 0.0012}},
		{Name: "slow <&>", Samples: []float64{0.5, 0.6, 0.4}},
	})
	rate := NewTable(Table{Scenario: "parallel", Title: "Throughput", Unit: PerSecond, HigherIsBetter: true, Baselines: []string{"bwrap"}}, []Series{
		{Name: "bwrap", Samples: []float64{100}},
		{Name: "fast", Own: true, Samples: []float64{250}},
	})
	return &Report{
		Date:    time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		Facts:   []Fact{{"CPU", "a | b"}, {"cores", "2"}},
		Skipped: []Skip{{"landrun", "not reachable:\n403"}},
		Tables:  []Table{cost, rate},
		Goals: []Goal{
			{What: "held", Title: "Starting `true`", Row: "fast", Baseline: "bwrap", Most: 0.2},
			{What: "not held", Title: "Starting `true`", Row: "fast", Baseline: "bwrap", Most: 0.05},
			{What: "of another table", Title: "Starting", Row: "fast", Baseline: "bwrap", Most: 1},
			{What: "without a baseline", Title: "Starting `true`", Row: "fast", Baseline: "gone", Most: 1},
		},
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := sample().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	want := "Measured on 2026-02-03.\n" + `
| machine |  |
| --- | --- |
| CPU | a \| b |
| cores | 2 |

### Goals

What cloche is to cost at most, and what it did in this run.

|  | at most | measured | held |
| --- | ---: | ---: | --- |
| held | 0.20 × bwrap | 0.10 (0.10–0.11) | yes |
| not held | 0.050 × bwrap | 0.10 (0.10–0.11) | **no** |

### Starting ` + "`true`" + `

Scenario ` + "`one-shot`" + `, 3 rounds, lower is better. Ratio: median (quartiles).

| contender | × bwrap | × gone | median |
| --- | ---: | ---: | ---: |
| bwrap | 1.00 | – | 10.0 ms |
| **fast** | 0.10 (0.10–0.11) | – | 1.20 ms |
| slow <&> | 50.0 (45.0–50.0) | – | 500 ms |

### Throughput

Scenario ` + "`parallel`" + `, 1 round, higher is better. Ratio: median (quartiles).

| contender | × bwrap | median |
| --- | ---: | ---: |
| bwrap | 1.00 | 100/s |
| **fast** | 2.50 | 250/s |

Not measured:

- landrun: not reachable: 403
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestUnits(t *testing.T) {
	tests := []struct {
		unit  Unit
		value float64
		want  string
	}{
		{Seconds, 0.0012345, "1.23 ms"},
		{Seconds, 2.5, "2.50 s"},
		{Seconds, 0.00001, "0.010 ms"},
		{PerSecond, 1355.2, "1355/s"},
		{Bytes, 12.25 * (1 << 20), "12.2 MiB"},
	}
	for _, c := range tests {
		if got := c.unit.Format(c.value); got != c.want {
			t.Errorf("%v of unit %d is %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}

// A bar is a rectangle of the plot.
type bar struct {
	x, width float64
	fill     string
}

// parseSVG reads the plot as a program that draws it would.
func parseSVG(t *testing.T, svg string) (bars []bar, texts []string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return bars, texts
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "rect" {
				bars = append(bars, parseBar(t, token))
			}
		case xml.CharData:
			texts = append(texts, strings.TrimSpace(string(token)))
		}
	}
}

func parseBar(t *testing.T, e xml.StartElement) bar {
	t.Helper()
	var b bar
	for _, a := range e.Attr {
		var err error
		switch a.Name.Local {
		case "x":
			b.x, err = strconv.ParseFloat(a.Value, 64)
		case "width":
			b.width, err = strconv.ParseFloat(a.Value, 64)
		case "fill":
			b.fill = a.Value
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func plotted(t *testing.T, r *Report) ([]bar, []string) {
	t.Helper()
	var b strings.Builder
	if err := r.SVG(&b); err != nil {
		t.Fatal(err)
	}
	return parseSVG(t, b.String())
}

func TestSVGBars(t *testing.T) {
	r := sample()
	bars, _ := plotted(t, r)
	one := newScale(r.Tables).x(1)
	var own, slow []bar
	for _, b := range bars {
		switch {
		case b.fill == ownColour:
			own = append(own, b)
		case b.fill == peerColour && b.width > 10:
			slow = append(slow, b)
		}
	}
	if len(own) != 2 || len(slow) != 1 {
		t.Fatalf("%d bars of ours and %d of others that are longer than nothing, want 2 and 1", len(own), len(slow))
	}
	const slack = 0.2
	if end := own[0].x + own[0].width; end < one-slack || end > one+slack || own[0].x >= one {
		t.Errorf("a tenth of the baseline is drawn from %v to %v; 1 is at %v", own[0].x, end, one)
	}
	if x := own[1].x; x < one-slack || x > one+slack {
		t.Errorf("2.5 times the baseline is drawn from %v; 1 is at %v", x, one)
	}
	// On a logarithmic scale 50 times is log 50 as long as 10 times.
	if got := slow[0].width / own[0].width; got < 1.6 || got > 1.8 {
		t.Errorf("50 times is drawn %v as long as a tenth, want 1.7", got)
	}
}

func TestSVGTexts(t *testing.T) {
	_, texts := plotted(t, sample())
	all := strings.Join(texts, "\n")
	for _, want := range []string{"Starting true", "slow <&>", "0.10 ×", "50.0 ×", "× bwrap, left is better", "× bwrap, right is better"} {
		if !strings.Contains(all, want) {
			t.Errorf("the plot does not say %q:\n%s", want, all)
		}
	}
}

// A contender without a ratio has no bar, and a report without tables is still
// a drawing.
func TestSVGWithoutRatios(t *testing.T) {
	table := NewTable(Table{Title: "alone", Baselines: []string{"gone"}}, []Series{{Name: "only", Samples: []float64{1}}})
	bars, texts := plotted(t, &Report{Tables: []Table{table}})
	if len(bars) != 1 || !strings.Contains(strings.Join(texts, "\n"), "no ratio") {
		t.Errorf("%d rectangles besides the ground, texts %q", len(bars)-1, texts)
	}
	plotted(t, &Report{})
}
