package report

import (
	"math"
	"slices"
)

// A Summary is the median of some values and their quartiles. Medians, because
// one launch in fifty meets a timer tick or a writeback and takes ten times as
// long; a mean would measure that.
type Summary struct {
	Median, Low, High float64
	// N is the number of values; with none, the others are not numbers.
	N int
}

// Known reports whether there was anything to summarize.
func (s Summary) Known() bool { return s.N > 0 }

// Summarize returns the median and the quartiles, interpolated between the
// nearest two values. It leaves the values as they are.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{
		Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.25), High: quantile(sorted, 0.75), N: len(sorted),
	}
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below == len(sorted)-1 {
		return sorted[below]
	}
	part := at - float64(below)
	return sorted[below]*(1-part) + sorted[below+1]*part
}

// Ratios divides the samples of each round by the baseline's sample of the same
// round. Rounds that only one of them has, or where the baseline is 0, have no
// ratio.
func Ratios(samples, baseline []float64) []float64 {
	var out []float64
	for i := range min(len(samples), len(baseline)) {
		if baseline[i] != 0 {
			out = append(out, samples[i]/baseline[i])
		}
	}
	return out
}
