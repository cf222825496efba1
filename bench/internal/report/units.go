package report

import (
	"fmt"
	"math"
)

// A Unit is what the values of a table are.
type Unit int

// The units.
const (
	Seconds        Unit = iota // the time of one launch
	PerSecond                  // launches per second
	Bytes                      // memory
	BytesPerSecond             // throughput
)

// Format writes a value for people.
func (u Unit) Format(v float64) string {
	switch u {
	case PerSecond:
		return threeDigits(v) + "/s"
	case Bytes:
		return threeDigits(v/(1<<20)) + " MiB"
	case BytesPerSecond:
		return threeDigits(v/1e6) + " MB/s"
	default:
		return formatSeconds(v)
	}
}

func formatSeconds(v float64) string {
	if v < 1 {
		return threeDigits(v*1000) + " ms"
	}
	return threeDigits(v) + " s"
}

// threeDigits writes a number with about three digits that say something, and
// never in scientific notation.
func threeDigits(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	case abs >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}
