package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The bounds of the rounds where -rounds does not set them.
const (
	maxRounds      = 100
	minRounds      = 3
	quickMinRounds = 2
	// quickPart is how much of a case's time a quick run has.
	quickPart = 10
)

// limits say how many rounds a case gets.
type limits struct {
	most, least int
	budget      time.Duration
}

func (l *lab) limits(c benchCase) limits {
	switch {
	case l.rounds > 0:
		return limits{most: l.rounds, least: l.rounds}
	case l.quick:
		return limits{most: maxRounds, least: quickMinRounds, budget: c.budget / quickPart}
	}
	return limits{most: maxRounds, least: minRounds, budget: c.budget}
}

// more reports whether there is another round after done ones that took the time.
func (b limits) more(done int, took time.Duration) bool {
	return done < b.least || done < b.most && took < b.budget
}

// A lane is one contender in a case.
type lane struct {
	report.Series
	sample sampler
	close  func() error
}

// measureCase measures one case.
func (l *lab) measureCase(ctx context.Context, s scenario, c benchCase, all []contender) (report.Table, error) {
	l.say("%s: %s", s.name, c.title)
	// cloche.Command takes the working folder of the program for its workspace.
	if err := os.Chdir(c.job.Workspace); err != nil {
		return report.Table{}, err
	}
	lanes, err := l.openLanes(ctx, c, all)
	if err == nil {
		lanes, err = l.interleave(ctx, c.title, lanes, l.limits(c))
	}
	if err := errors.Join(err, closeLanes(lanes)); err != nil {
		return report.Table{}, err
	}
	series := make([]report.Series, len(lanes))
	for i, ln := range lanes {
		series[i] = ln.Series
	}
	return report.NewTable(report.Table{
		Scenario: s.name, Title: c.title, Unit: c.unit, HigherIsBetter: c.higher, Baselines: c.baselines,
	}, series), nil
}

// openLanes gets every contender ready. One that cannot do the job is left out
// and named.
func (l *lab) openLanes(ctx context.Context, c benchCase, all []contender) ([]*lane, error) {
	if c.contenders != nil {
		all = c.contenders
	}
	var lanes []*lane
	for _, who := range all {
		if !c.wants(who) {
			continue
		}
		ln, err := l.openLane(ctx, c, who)
		if ctx.Err() != nil {
			return lanes, ctx.Err()
		}
		if err != nil {
			l.skip(fmt.Sprintf("%s in %q", who.name, c.title), err)
			continue
		}
		lanes = append(lanes, ln)
	}
	return lanes, nil
}

func (l *lab) openLane(ctx context.Context, c benchCase, who contender) (*lane, error) {
	r, err := who.open(ctx, l, c.job)
	if err != nil {
		return nil, err
	}
	sample, err := c.sampler(ctx, l, r)
	if err != nil {
		return nil, errors.Join(r.process.why(ctx, err), r.close())
	}
	return &lane{Series: report.Series{Name: who.name, Own: who.own}, sample: sample, close: r.close}, nil
}

func closeLanes(lanes []*lane) error {
	var errs []error
	for _, ln := range lanes {
		errs = append(errs, ln.close())
	}
	return errors.Join(errs...)
}

// interleave measures all contenders in turns: one sample of each is a round.
// What else happens on the machine then happens to all of them, and a ratio
// within a round does not see it. Each round is in an order of its own: whoever
// always followed the same neighbour would always find the caches as that one
// leaves them.
func (l *lab) interleave(ctx context.Context, title string, lanes []*lane, b limits) ([]*lane, error) {
	start, order := time.Now(), l.order(title)
	for done := 0; len(lanes) > 0 && b.more(done, time.Since(start)); done++ {
		failed := map[*lane]bool{}
		for _, i := range order.Perm(len(lanes)) {
			ln := lanes[i]
			value, err := ln.sample(ctx)
			if ctx.Err() != nil {
				return lanes, ctx.Err()
			}
			if err != nil {
				err = errors.Join(err, ln.close())
				l.skip(fmt.Sprintf("%s in %q", ln.Name, title), fmt.Errorf("it failed in round %d: %w", done+1, err))
				failed[ln] = true
				continue
			}
			ln.Samples = append(ln.Samples, value)
		}
		lanes = without(lanes, failed)
	}
	return lanes, nil
}

// order draws the orders of the rounds of a case. They depend on the seed and on
// the case alone: how many rounds other cases had time for changes nothing.
func (l *lab) order(title string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, title) // which never fails
	return rand.New(rand.NewPCG(l.seed, h.Sum64()))
}

// without returns the lanes that did not fail. A lane with a missing round
// would be compared with the wrong rounds of the others.
func without(lanes []*lane, failed map[*lane]bool) []*lane {
	var kept []*lane
	for _, ln := range lanes {
		if !failed[ln] {
			kept = append(kept, ln)
		}
	}
	return kept
}

// The time that one sample of launches should take at least, and how many
// launches it may be. A single launch is close to what the clock and the
// scheduler disturb.
const (
	sampleTime      = 40 * time.Millisecond
	quickSampleTime = 10 * time.Millisecond
	maxLaunches     = 32
	// launchPause is before each launch and is not measured. Kernels take namespaces
	// apart after their last process is gone, and a session makes the next sandbox:
	// that is no part of the next launch, least of all of another contender's. What
	// launches cost that follow each other at once the scenario "parallel" shows.
	launchPause = 3 * time.Millisecond
)

// launchTime samples the time of one launch, over as many as fill a sample.
func launchTime(ctx context.Context, l *lab, r *runner) (sampler, error) {
	// The first run fills caches, the second tells how many make up a sample.
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	want := sampleTime
	if l.quick {
		want = quickSampleTime
	}
	launches := launchesFor(want, time.Since(start))
	return func(ctx context.Context) (float64, error) {
		var took time.Duration
		for range launches {
			time.Sleep(launchPause)
			start := time.Now()
			if err := r.run(ctx); err != nil {
				return 0, err
			}
			took += time.Since(start)
		}
		return took.Seconds() / float64(launches), nil
	}, nil
}

func launchesFor(want, one time.Duration) int {
	return int(min(max(want/max(one, 1), 1), maxLaunches))
}
