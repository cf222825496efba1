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

// roundOrders are the orders of n rounds of a, b, c and d by a seed.
func roundOrders(t *testing.T, seed uint64, title string, n int) []string {
	t.Helper()
	var order []string
	l := testLab()
	l.seed = seed
	lanes, err := l.interleave(t.Context(), title, fakeLanes(&order, "a", "b", "c", "d"), limits{most: n, least: n})
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range lanes {
		if len(ln.Samples) != n {
			t.Errorf("%s has %d samples, want %d", ln.Name, len(ln.Samples), n)
		}
	}
	var rounds []string
	for round := range slices.Chunk(order, len(lanes)) {
		rounds = append(rounds, strings.Join(round, ""))
	}
	return rounds
}

func TestInterleave(t *testing.T) {
	first, pairs := map[byte]bool{}, map[string]bool{}
	for _, round := range roundOrders(t, 1, "case", 100) {
		if got := slices.Sorted(strings.SplitSeq(round, "")); strings.Join(got, "") != "abcd" {
			t.Errorf("a round is %s: it has to have all of them, once", round)
		}
		first[round[0]] = true
		for i := range len(round) - 1 {
			pairs[round[i:i+2]] = true
		}
	}
	if len(first) != 4 {
		t.Errorf("in 100 rounds %d of 4 came first", len(first))
	}
	if len(pairs) != 4*3 {
		t.Errorf("in 100 rounds there were the neighbours %v, want all 12", pairs)
	}
}

func TestInterleaveIsRepeatable(t *testing.T) {
	orders := roundOrders(t, 1, "case", 20)
	if again := roundOrders(t, 1, "case", 20); !slices.Equal(again, orders) {
		t.Errorf("the same seed gives %v, and then %v", orders, again)
	}
	if other := roundOrders(t, 2, "case", 20); slices.Equal(other, orders) {
		t.Error("another seed gives the same order")
	}
	if other := roundOrders(t, 1, "another case", 20); slices.Equal(other, orders) {
		t.Error("another case has the same order")
	}
}

func TestSeed(t *testing.T) {
	drawn, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := parseOptions(nil, io.Discard); err != nil || other.seed == drawn.seed {
		t.Errorf("two runs have the seed %d (%v)", drawn.seed, err)
	}
	given, err := parseOptions([]string{"-seed", "7"}, io.Discard)
	if err != nil || given.seed != 7 {
		t.Errorf("-seed 7 is %d (%v)", given.seed, err)
	}
	l := &lab{options: given}
	if facts := l.machineFacts(t.Context()); !slices.Contains(facts, report.Fact{Name: "order of the rounds", Value: "-seed 7"}) {
		t.Errorf("the report does not tell the seed: %v", facts)
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
		t.Errorf("the failure is reported as %+v", l.skipped)
	}
}

func TestInterleaveStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var order []string
	lanes := fakeLanes(&order, "a", "b")
	for _, ln := range lanes {
		good := ln.sample
		ln.sample = func(ctx context.Context) (float64, error) { cancel(); return good(ctx) }
	}
	if _, err := testLab().interleave(ctx, "case", lanes, limits{most: 9, least: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled run ends with %v", err)
	}
	if len(order) != 1 {
		t.Errorf("%v was measured: the first ends the run", order)
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
		time.Sleep(time.Millisecond) // so that others run at the same time
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
