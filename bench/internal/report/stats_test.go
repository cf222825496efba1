package report

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	tests := map[string]struct {
		values []float64
		want   Summary
	}{
		"one":            {[]float64{7}, Summary{7, 7, 7, 1}},
		"two":            {[]float64{3, 1}, Summary{2, 1.5, 2.5, 2}},
		"odd, unsorted":  {[]float64{5, 1, 4, 2, 3}, Summary{3, 2, 4, 5}},
		"even":           {[]float64{1, 2, 3, 4}, Summary{2.5, 1.75, 3.25, 4}},
		"one wild value": {[]float64{1, 1, 1, 1, 1000}, Summary{1, 1, 1, 5}},
	}
	for name, c := range tests {
		if got := Summarize(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSummarizeNothing(t *testing.T) {
	s := Summarize(nil)
	if s.Known() || !math.IsNaN(s.Median) {
		t.Errorf("no values gave %+v", s)
	}
}

func TestSummarizeLeavesValuesAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	Summarize(values)
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Errorf("the values were sorted in place: %v", values)
	}
}

func TestRatios(t *testing.T) {
	tests := map[string]struct{ samples, base, want []float64 }{
		"by round":            {[]float64{2, 9}, []float64{1, 3}, []float64{2, 3}},
		"a shorter baseline":  {[]float64{2, 9, 4}, []float64{1, 3}, []float64{2, 3}},
		"a baseline of zero":  {[]float64{2, 9}, []float64{0, 3}, []float64{3}},
		"no baseline at all":  {[]float64{2, 9}, nil, nil},
		"no samples to judge": {nil, []float64{1}, nil},
	}
	for name, c := range tests {
		if got := Ratios(c.samples, c.base); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A machine that is ten times slower in one round is so for everybody; the
// ratio must not show it.
func TestNewTableCancelsSlowRounds(t *testing.T) {
	table := NewTable(Table{Baselines: []string{"base"}}, []Series{
		{Name: "base", Samples: []float64{1, 10, 1, 1}},
		{Name: "other", Own: true, Samples: []float64{2, 20, 2, 2}},
	})
	got := table.Rows[1].Ratios[0]
	if got.Low != 2 || got.Median != 2 || got.High != 2 {
		t.Errorf("the ratio is %+v, want 2 throughout", got)
	}
	if table.Rounds != 4 || !table.Rows[1].Own || table.Rows[0].Own {
		t.Errorf("the table is %+v", table)
	}
}

func TestNewTableWithoutBaseline(t *testing.T) {
	table := NewTable(Table{Baselines: []string{"gone"}}, []Series{{Name: "only", Samples: []float64{1}}})
	if table.Rows[0].Ratios[0].Known() {
		t.Errorf("there is a ratio to a baseline that was not measured: %+v", table.Rows[0])
	}
}
