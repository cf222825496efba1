package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// fakeLanes are contenders that note in which order they are measured.
func fakeLanes(order *[]string, names ...string) []*lane {
	var lanes []*lane
	for _, name := range names {
		lanes = append(lanes, &lane{
			Series: report.Series{Name: name},
			sample: func(context.Context) (float64, error) {
				*order = append(*order, name)
				return float64(len(*order)), nil
			},
			close: func() error { return nil },
		})
	}
	return lanes
}

func testLab() *lab { return &lab{log: io.Discard} }

func TestInterleave(t *testing.T) {
	var order []string
	lanes, err := testLab().interleave(t.Context(), "case", fakeLanes(&order, "a", "b", "c"), limits{most: 3, least: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abcbcacab" {
		t.Errorf("the order is %s: every round has all of them, and begins with another", got)
	}
	for _, ln := range lanes {
		if len(ln.Samples) != 3 {
			t.Errorf("%s has %d samples, want 3", ln.Name, len(ln.Samples))
		}
	}
}

func TestInterleaveDropsWhoFails(t *testing.T) {
	var order []string
	lanes := fakeLanes(&order, "a", "b", "c")
	closed := 0
	lanes[1].close = func() error { closed++; return nil }
	good := lanes[1].sample
	lanes[1].sample = func(ctx context.Context) (float64, error) {
		if slices.Contains(order, "b") {
			return 0, errors.New("out of order")
		}
		return good(ctx)
	}
	l := testLab()
	kept, err := l.interleave(t.Context(), "case", lanes, limits{most: 4, least: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 2 || len(kept[0].Samples) != 4 || len(kept[1].Samples) != 4 {
		t.Errorf("kept %+v, want a and c with 4 samples each", kept)
	}
	if closed != 1 {
		t.Errorf("what failed was closed %d times", closed)
	}
	if len(l.skipped) != 1 || !strings.Contains(l.skipped[0].Reason, "round 2: out of order") || !strings.Contains(l.skipped[0].Name, "b in") {
		t.Errorf("the failure is told as %+v", l.skipped)
	}
}

func TestInterleaveStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var order []string
	lanes := fakeLanes(&order, "a", "b")
	lanes[0].sample = func(context.Context) (float64, error) { cancel(); return 1, nil }
	if _, err := testLab().interleave(ctx, "case", lanes, limits{most: 9, least: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled run ends with %v", err)
	}
	if len(order) != 0 {
		t.Errorf("after the end %v was measured", order)
	}
}

func TestLimits(t *testing.T) {
	c := benchCase{budget: time.Minute}
	full := (&lab{}).limits(c)
	exact := (&lab{options: options{rounds: 7, quick: true}}).limits(c)
	quick := (&lab{options: options{quick: true}}).limits(c)
	tests := []struct {
		name string
		b    limits
		done int
		took time.Duration
		want bool
	}{
		{"at the start", full, 0, 0, true},
		{"out of time but too few", full, minRounds - 1, time.Hour, true},
		{"out of time", full, minRounds, time.Hour, false},
		{"in time", full, minRounds, time.Second, true},
		{"enough", full, maxRounds, time.Second, false},
		{"the number that was asked for, not yet", exact, 6, time.Hour, true},
		{"the number that was asked for", exact, 7, 0, false},
		{"a quick run is out of time earlier", quick, quickMinRounds, time.Minute / 5, false},
	}
	for _, c := range tests {
		if got := c.b.more(c.done, c.took); got != c.want {
			t.Errorf("%s: another round is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLaunchesFor(t *testing.T) {
	tests := []struct {
		one  time.Duration
		want int
	}{
		{time.Second, 1}, {20 * time.Millisecond, 2}, {time.Millisecond, maxLaunches}, {0, maxLaunches},
	}
	for _, c := range tests {
		if got := launchesFor(40*time.Millisecond, c.one); got != c.want {
			t.Errorf("launches of %v: %d in a sample, want %d", c.one, got, c.want)
		}
	}
}

func TestLaunchAll(t *testing.T) {
	var mu sync.Mutex
	var running, most, total int
	r := &runner{run: func(context.Context) error {
		mu.Lock()
		running, total = running+1, total+1
		most = max(most, running)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	}}
	if err := launchAll(t.Context(), r, 20, 3); err != nil {
		t.Fatal(err)
	}
	if total != 20 || most > 3 {
		t.Errorf("%d launches, at most %d at a time; want 20 and 3", total, most)
	}
	broken := errors.New("broken")
	err := launchAll(t.Context(), &runner{run: func(context.Context) error { return broken }}, 20, 3)
	if !errors.Is(err, broken) {
		t.Errorf("a failed launch gives %v", err)
	}
}
