package main

import (
	"context"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// A scenario is a question about performance. Each has a file of its own.
type scenario struct {
	name, about string
	// cases makes what the scenario needs, in the lab's folder.
	cases func(context.Context, *lab) ([]benchCase, error)
}

// changesName is the scenario that is measured in a run of its own for the page.
const changesName = "changes"

func scenarios() []scenario {
	return []scenario{
		{"one-shot", "start the command true, once for each launch", oneShotCases},
		{"rules", "start true under 10, 100 and 1000 path rules", rulesCases},
		{"parallel", "start 1, 2, 16 and 64 commands at a time", parallelCases},
		{"work", "git status, go build and tar, inside and outside", workCases},
		{changesName, "create, rename, remove and open many files", changesCases},
		{agentName, "a real coding agent that runs many short commands", agentCases},
		{reviewName, "start, work and list with --review", reviewCases},
		{"memory", "the memory of the process that stays outside", memoryCases},
		{"network", "make a network, connect and carry data through it", networkCases},
	}
}

// A benchCase is one table: several contenders, one job, one way to measure.
type benchCase struct {
	title string
	job   job
	// wants says who takes part, of contenders or, if there are none, of the usual ones.
	wants      func(contender) bool
	contenders []contender
	// baselines are what ratios are relative to.
	baselines []string
	unit      report.Unit
	higher    bool // is better
	// budget is the time for the rounds of a full run.
	budget time.Duration
	// sampler gets ready to measure one contender; it also warms up.
	sampler func(context.Context, *lab, *runner) (sampler, error)
}

// A sampler measures a contender once.
type sampler func(context.Context) (float64, error)

// everybody takes part.
func everybody(contender) bool { return true }

// swift leaves out those that would take most of the time.
func swift(c contender) bool { return !c.slow }

// swiftSandboxes leaves out the plain exec, too.
func swiftSandboxes(c contender) bool { return swift(c) && c.name != plainName }
