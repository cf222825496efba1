package main

import (
	"context"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// oneShotCases ask what a command costs that does nothing: the price of the
// sandbox alone.
func oneShotCases(_ context.Context, l *lab) ([]benchCase, error) {
	dir, err := l.folder("one-shot")
	if err != nil {
		return nil, err
	}
	return []benchCase{{
		title: oneShotTitle, job: job{Argv: []string{"true"}, Workspace: dir}, wants: everybody,
		baselines: []string{plainName, "bwrap"}, unit: report.Seconds, budget: 60 * time.Second, sampler: launchTime,
	}}, nil
}
