package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// rulesCases ask what a rule costs. A hidden folder holds as many folders as
// there are rules, and each of them is shown again: no rule is made redundant
// by another, so that all of them have to be enforced.
func rulesCases(_ context.Context, l *lab) ([]benchCase, error) {
	counts := []int{10, 100, 1000}
	if l.quick {
		counts = counts[:2]
	}
	var cases []benchCase
	for _, n := range counts {
		j, err := l.rulesJob(n)
		if err != nil {
			return nil, err
		}
		cases = append(cases, benchCase{
			title: rulesTitle(n), job: j, wants: swiftSandboxes,
			baselines: []string{"bwrap"}, unit: report.Seconds, budget: rulesBudget(n), sampler: launchTime,
		})
	}
	return cases, nil
}

// rulesBudget allows for launches that take seconds: bubblewrap reads the whole
// mount table again for each bind.
func rulesBudget(n int) time.Duration {
	if n >= 1000 {
		return 70 * time.Second
	}
	return 15 * time.Second
}

func (l *lab) rulesJob(n int) (job, error) {
	dir, err := l.folder(fmt.Sprintf("rules-%d", n))
	if err != nil {
		return job{}, err
	}
	hidden := filepath.Join(l.home, fmt.Sprintf("data-%d", n))
	j := job{Argv: []string{"true"}, Workspace: dir, Hide: []string{hidden}}
	for i := range n {
		shown := filepath.Join(hidden, fmt.Sprintf("set-%04d", i))
		if err := os.MkdirAll(shown, 0o755); err != nil {
			return job{}, err
		}
		j.Read = append(j.Read, shown)
	}
	return j, nil
}
