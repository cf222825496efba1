package main

import (
	"fmt"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The titles of tables that goals are about.
const (
	oneShotTitle = "Starting `true`"
	goTitle      = "`go build` with a warm cache"
)

func rulesTitle(rules int) string { return fmt.Sprintf("Starting `true` with %d path rules", rules) }
func tarTitle(files int) string   { return fmt.Sprintf("`tar` of %d files", files) }
func gitTitle(files int) string   { return fmt.Sprintf("`git status` in %d files", files) }

// mainGoals are what cloche is to cost at most, for the scenarios without a part of their own. Work is compared in a warm session: it is
// about what a command pays inside, and the start has a goal of its own.
var mainGoals = []report.Goal{
	{What: "`cloche run -- true`", Title: oneShotTitle, Row: "cloche run, native", Baseline: "bwrap", Most: 0.75},
	{What: "one command from the library", Title: oneShotTitle, Row: "library, native", Baseline: "bwrap", Most: 0.4},
	{What: "a command in a warm session", Title: oneShotTitle, Row: "warm session, native", Baseline: plainName, Most: 1.75},
	{What: "a command in a fast session", Title: oneShotTitle, Row: "fast session, native", Baseline: plainName, Most: 1.2},
	{What: "a start with 1000 rules", Title: rulesTitle(1000), Row: "cloche run, native", Baseline: "bwrap", Most: 0.05},
	{What: "`tar` inside", Title: tarTitle(treeFiles), Row: "warm session, native", Baseline: plainName, Most: 1.2},
	{What: "`git status` inside", Title: gitTitle(treeFiles), Row: "warm session, native", Baseline: plainName, Most: 1.1},
	{What: "`go build` inside", Title: goTitle, Row: "warm session, native", Baseline: plainName, Most: 1.1},
}
