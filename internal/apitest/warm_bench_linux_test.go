package apitest

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// BenchmarkSession compares a command of a session with a plain one (N10). Each
// is measured in turns with its own plain one, because what ends after a command
// weighs on the next; the ratio of the medians is what counts. Changes are sessions
// that have no reads on record.
func BenchmarkSession(b *testing.B) {
	testenv.Need(b, "userns")
	dir := b.TempDir()
	usual := policy.Workspace(dir)
	changes := usual.With(policy.Set("denials", "changes"))
	for _, mode := range []struct {
		name   string
		policy policy.Policy
		opts   []cloche.Option
	}{
		{"Exec", usual, nil},
		{"Warm", usual, []cloche.Option{cloche.WithWarm()}},
		{"Fast", usual, []cloche.Option{cloche.WithWarmFast()}},
		{"WarmChanges", changes, []cloche.Option{cloche.WithWarm()}},
		{"FastChanges", changes, []cloche.Option{cloche.WithWarmFast()}},
	} {
		b.Run(mode.name, func(b *testing.B) {
			s, err := cloche.Open(b.Context(), mode.policy, append(mode.opts, cloche.WithWorkspace(dir))...)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			own := func() error { return s.Command(b.Context(), "/bin/true").Run() }
			if mode.opts == nil { // how far two samples of the same differ
				own = plain
			}
			compare(b, own)
		})
	}
}

func plain() error { return exec.Command("/bin/true").Run() }

// pause is the time between two commands, which is not measured: what one leaves to
// be done, the next command's sandbox above all, is done by then.
const pause = 3 * time.Millisecond

// compare reports how much longer a command takes than a plain one.
func compare(b *testing.B, own func() error) {
	var samples [2][]time.Duration
	measure := func(i int, f func() error) {
		time.Sleep(pause) // between commands, as an agent does
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		samples[i] = append(samples[i], time.Since(start))
	}
	if err := own(); err != nil { // it parks the sandbox
		b.Fatal(err)
	}
	for b.Loop() {
		measure(0, plain)
		measure(1, own)
	}
	for i := range samples {
		slices.Sort(samples[i])
	}
	median := len(samples[0]) / 2
	b.ReportMetric(float64(samples[1][median])/float64(samples[0][median]), "x-plain")
}
