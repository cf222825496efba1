package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// reviewName is the name of the scenario.
const reviewName = "review"

// The contenders of the scenario review. Both are the command cloche with the backend native.
const (
	reviewWithout = "cloche run"
	reviewWith    = "cloche run --review"
	reviewList    = "cloche review"
	// reviewLimit always takes as long as a list may take.
	reviewLimit = "two seconds"
)

const reviewStartTitle = "Starting `true` in a review"

func reviewWorkTitle(what string) string { return what + ", in a review" }
func reviewListTitle(files int) string {
	return fmt.Sprintf("Listing a review of %d changed files", files)
}

func npmTitle(packages int) string { return fmt.Sprintf("`npm ci` of %d packages", packages) }

// reviewGoals are the goals of the scenario.
func reviewGoals() []report.Goal {
	goals := []report.Goal{
		{What: "a start with `--review`", Title: reviewStartTitle, Row: reviewWith, Baseline: reviewWithout, Most: 1.5},
		{What: fmt.Sprintf("`cloche review` of %d changed files", treeFiles), Title: reviewListTitle(treeFiles), Row: reviewList, Baseline: reviewLimit, Most: 1},
	}
	for _, what := range []string{tarTitle(treeFiles), gitTitle(treeFiles), goTitle, npmTitle(fullSizes.packages)} {
		goals = append(goals, report.Goal{What: what + " with `--review`", Title: reviewWorkTitle(what), Row: reviewWith, Baseline: reviewWithout, Most: 1.5})
	}
	return goals
}

// reviewCases ask what a review costs: its start, work in it, and its list. Each sample of work is the first in a new review.
func reviewCases(ctx context.Context, l *lab) ([]benchCase, error) {
	files, size := treeFiles, fullSizes
	if l.quick {
		files, size = quickTreeFiles, quickSizes
	}
	var cases []benchCase
	add := func(title string, j job, before []string, err error) {
		if err != nil {
			l.skip(title, err)
			return
		}
		cases = append(cases, benchCase{
			title: title, job: j, wants: everybody, baselines: []string{reviewWithout}, unit: report.Seconds, budget: 20 * time.Second,
			contenders: []contender{{name: reviewWithout, own: true, open: openReviewRun("")}, {name: reviewWith, own: true, open: openReviewRun("--review")}},
			sampler:    reviewTime(before),
		})
	}
	start, err := l.folder("review-start")
	if err != nil {
		return nil, err
	}
	add(reviewStartTitle, job{Argv: []string{"true"}, Workspace: start}, nil, nil)
	tree, err := l.folder("review-tree")
	if err != nil {
		return nil, err
	}
	l.say("review: making a tree of %d files", files)
	if err := makeTree(filepath.Join(tree, "files"), files); err != nil {
		return nil, err
	}
	j, err := tarJob(tree)
	add(reviewWorkTitle(tarTitle(files)), j, nil, err)
	j, err = gitJob(ctx, tree)
	add(reviewWorkTitle(gitTitle(files)), j, nil, err)
	j, err = l.goJob(ctx)
	add(reviewWorkTitle(goTitle), j, nil, err)
	npm, err := l.folder("review-npm")
	if err != nil {
		return nil, err
	}
	j, before, err := npmJob(ctx, npm, size)
	j.Workspace = npm
	add(reviewWorkTitle(npmTitle(size.packages)), j, append([]string{"cd " + quote(npm)}, before...), err)
	list, err := l.reviewListCase(ctx, files)
	if err != nil {
		l.skip(reviewListTitle(files), err)
		return cases, ctx.Err()
	}
	return append(cases, list), ctx.Err()
}

// openReviewRun returns what runs a job with the backend native and one more flag.
func openReviewRun(flag string) func(context.Context, *lab, job) (*runner, error) {
	return func(_ context.Context, l *lab, j job) (*runner, error) {
		argv := []string{l.cloche, "run", "--backend", "native"}
		if flag != "" {
			argv = append(argv, flag)
		}
		for _, v := range j.Env {
			argv = append(argv, "--env", v)
		}
		return command{argv: slices.Concat(argv, []string{"--"}, j.Argv), env: os.Environ(), dir: j.Workspace}.runner(), nil
	}
}

// reviewTime samples the time of one launch. Before it, the review of the last one is dropped.
func reviewTime(before []string) func(context.Context, *lab, *runner) (sampler, error) {
	return func(ctx context.Context, l *lab, r *runner) (sampler, error) {
		drop := fmt.Sprintf("cd %s; %s review discard >/dev/null 2>&1 || true", quote(r.process.dir), quote(l.cloche))
		return timeAfter(append([]string{drop}, before...))(ctx, l, r)
	}
}

// reviewListCase measures the list of a review in which each file of a tree was changed.
func (l *lab) reviewListCase(ctx context.Context, files int) (benchCase, error) {
	dir, err := l.folder("review-list")
	if err != nil {
		return benchCase{}, err
	}
	l.say("review: changing %d files", files)
	if err := makeTree(filepath.Join(dir, "files"), files); err != nil {
		return benchCase{}, err
	}
	change := []string{l.cloche, "run", "--backend", "native", "--review", "--", "sh", "-c", "find files -type f -exec sed -i s/line/word/ {} +"}
	if err := inFolder(ctx, dir, os.Environ(), change...); err != nil {
		return benchCase{}, err
	}
	open := func(ctx context.Context, _ *lab, j job) (*runner, error) {
		c := command{argv: j.Argv, env: os.Environ(), dir: j.Workspace}
		out, err := c.cmd(ctx).Output()
		if want := fmt.Sprintf("\n%d changes,", files); err == nil && !strings.Contains(string(out), want) {
			err = fmt.Errorf("the list does not end with %q", want)
		}
		return c.runner(), err
	}
	limit := func(context.Context, *lab, job) (*runner, error) {
		return &runner{
			run: func(context.Context) error { return nil }, close: func() error { return nil },
			sample: func(context.Context) (float64, error) { return 2, nil },
		}, nil
	}
	return benchCase{
		title: reviewListTitle(files), job: job{Argv: []string{l.cloche, "review"}, Workspace: dir}, wants: everybody, baselines: []string{reviewLimit},
		contenders: []contender{{name: reviewLimit, open: limit}, {name: reviewList, own: true, open: open}},
		unit:       report.Seconds, budget: 20 * time.Second,
		sampler: func(ctx context.Context, l *lab, r *runner) (sampler, error) {
			if r.sample != nil {
				return r.sample, nil
			}
			return launchTime(ctx, l, r)
		},
	}, nil
}
