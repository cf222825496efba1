package backendtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/backend"
)

// caseTime bounds one case, even on a busy machine.
const caseTime = 2 * time.Minute

// A testCase is one property that a sandbox has to have.
type testCase struct {
	name string
	// rules are the rules that the case is about, in the words of backend.Gap. If the
	// backend declares a gap in one of them, the case only checks that a strict policy is
	// refused for it.
	rules []string
	run   func(*check)
}

// workers is the number of cases that run at the same time.
const workers = 4

// Options say which cases run, and how. The zero value runs all of them, each in its own
// sandbox.
type Options struct {
	// Only, unless empty, runs the cases whose names begin with one of the prefixes.
	Only []string
	// Warm runs every case in sessions that keep their sandbox ready ([cloche.WithWarm]). A
	// case's command is never the first of its session, so that it gets a sandbox that
	// another command used before. WarmFast is the same for [cloche.WithWarmFast].
	Warm, WarmFast bool
	// Wrapped runs the cases that test a sandbox from the inside as commands that
	// [cloche.Session.Wrap] wraps and the suite starts itself. Cases about features of a
	// [cloche.Cmd], such as its limits, run as usual.
	Wrapped bool
}

func (o *Options) selected() []testCase {
	return slices.DeleteFunc(slices.Clone(cases), func(tc testCase) bool {
		return len(o.Only) > 0 && !slices.ContainsFunc(o.Only, func(p string) bool { return strings.HasPrefix(tc.name, p) })
	})
}

// Run runs every case against the backend, each as a subtest.
func Run(t *testing.T, entry backend.Entry, o Options) {
	t.Helper()
	if reason := unready(); reason != "" {
		t.Skip(reason)
	}
	slots := make(chan struct{}, workers)
	for _, tc := range o.selected() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			r := runCase(tc, entry, o, t.TempDir)
			r.report(t)
		})
	}
}

// runCase runs one case in its own goroutine, which the case may leave at any point,
// and returns the finished case.
func runCase(tc testCase, entry backend.Entry, o Options, dir func() string) *check {
	ctx, cancel := context.WithTimeout(context.Background(), caseTime)
	defer cancel()
	c := &check{ctx: ctx, cancel: cancel, tc: tc, entry: entry, options: o, makeDir: dir, token: newToken()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.cleanUp()
		c.layOut()
		tc.run(c)
	}()
	<-done
	return c
}

// report passes the results of a case to a test.
func (c *check) report(t *testing.T) {
	t.Helper()
	for _, s := range c.logs {
		t.Log(s)
	}
	for _, s := range c.errors {
		t.Error(s)
	}
	if c.skipped != "" && len(c.errors) == 0 {
		t.Skip(c.skipped)
	}
}

// Errorf records that the backend fails the case.
func (c *check) Errorf(format string, args ...any) {
	c.errors = append(c.errors, fmt.Sprintf(format, args...))
}

// Fatalf is Errorf, and ends the case.
func (c *check) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Logf records a message.
func (c *check) Logf(format string, args ...any) {
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// Skipf ends the case because this machine cannot run it.
func (c *check) Skipf(format string, args ...any) {
	c.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// must ends the case if a preparation of its own failed.
func (c *check) must(err error) {
	if err != nil {
		c.Fatalf("preparing the case: %v", err)
	}
}
