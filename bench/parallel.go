package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// parallelCases ask how many launches a machine makes in a second when several
// are under way at a time.
func parallelCases(_ context.Context, l *lab) ([]benchCase, error) {
	dir, err := l.folder("parallel")
	if err != nil {
		return nil, err
	}
	widths := []int{1, 2, 16, 64}
	if l.quick {
		widths = []int{2, 16}
	}
	var cases []benchCase
	for _, n := range widths {
		cases = append(cases, benchCase{
			title: fmt.Sprintf("Launches per second, %d at a time", n),
			job:   job{Argv: []string{"true"}, Workspace: dir}, wants: swift,
			baselines: []string{"bwrap"}, unit: report.PerSecond, higher: true,
			budget: 15 * time.Second, sampler: throughput(n),
		})
	}
	return cases, nil
}

// minLaunches keeps a sample of few parallel launches from being a single one.
const minLaunches = 8

// throughput samples launches per second with n under way at a time.
func throughput(n int) func(context.Context, *lab, *runner) (sampler, error) {
	launches := max(n, minLaunches)
	return func(ctx context.Context, _ *lab, r *runner) (sampler, error) {
		if err := r.run(ctx); err != nil {
			return nil, err
		}
		return func(ctx context.Context) (float64, error) {
			start := time.Now()
			err := launchAll(ctx, r, launches, n)
			return float64(launches) / time.Since(start).Seconds(), err
		}, nil
	}
}

// launchAll launches so many times, n at a time, and returns one of the errors.
func launchAll(ctx context.Context, r *runner, launches, n int) error {
	var left atomic.Int64
	left.Store(int64(launches))
	failed := make(chan error, n)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := r.run(ctx); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}
