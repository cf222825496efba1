package backendtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/backend"
)

// caseTime bounds one case on a machine that is busy with others.
const caseTime = 2 * time.Minute

// A testCase is one thing that a sandbox has to hold.
type testCase struct {
	name string
	// rules are what the case is about, in the words of backend.Gap. The case
	// is about each of them: a gap in any makes it moot.
	rules []string
	run   func(*check)
}

// An Option changes how the suite is run.
type Option func(*config)

type config struct {
	only    []string
	workers int
	warm    warmth
	wrapped bool
}

// Only runs the cases whose names begin with one of the prefixes.
func Only(prefixes ...string) Option {
	return func(c *config) { c.only = append(c.only, prefixes...) }
}

// Warm runs every case in sessions that keep their sandbox ready, [cloche.WithWarm].
// The command of a case is never the first of its session, so that it gets a
// sandbox that another one was in before.
func Warm() Option { return func(c *config) { c.warm = warm } }

// WarmFast is the same for [cloche.WithWarmFast]. Cases about one command at a time
// hold there too.
func WarmFast() Option { return func(c *config) { c.warm = warmFast } }

// Wrapped runs the cases that look at a sandbox from the inside in commands that
// [cloche.Session.Wrap] has wrapped and the suite runs itself. Cases about what
// a [cloche.Cmd] does, its limits for instance, run as always.
func Wrapped() Option { return func(c *config) { c.wrapped = true } }

// Workers sets how many cases run at once. The default is 4.
func Workers(n int) Option { return func(c *config) { c.workers = max(1, n) } }

func newConfig(opts []Option) config {
	c := config{workers: 4}
	for _, o := range opts {
		o(&c)
	}
	return c
}

func (c config) selected() []testCase {
	return slices.DeleteFunc(slices.Clone(cases), func(tc testCase) bool {
		return len(c.only) > 0 && !slices.ContainsFunc(c.only, func(p string) bool { return strings.HasPrefix(tc.name, p) })
	})
}

// Run runs every case against the backend, each as a subtest.
func Run(t *testing.T, entry backend.Entry, opts ...Option) {
	t.Helper()
	conf := newConfig(opts)
	if reason := unready(); reason != "" {
		t.Skip(reason)
	}
	slots := make(chan struct{}, conf.workers)
	for _, tc := range conf.selected() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			r := runCase(tc, entry, conf, t.TempDir)
			r.report(t)
		})
	}
}

// A Failure is a case that the backend does not pass.
type Failure struct {
	// Case is the name of the case.
	Case string
	// Messages say what is wrong.
	Messages []string
}

// String returns the failure as text.
func (f Failure) String() string { return f.Case + ": " + strings.Join(f.Messages, "; ") }

// Check runs the cases like [Run] and returns those that fail, for a program
// that wants to look at them: a test, say, that a backend which is broken on
// purpose is found out. The files of the cases are made below dir.
func Check(dir string, entry backend.Entry, opts ...Option) ([]Failure, error) {
	conf := newConfig(opts)
	if reason := unready(); reason != "" {
		return nil, fmt.Errorf("backendtest: %s", reason)
	}
	var (
		mu       sync.Mutex
		failures []Failure
		wait     sync.WaitGroup
	)
	slots := make(chan struct{}, conf.workers)
	for i, tc := range conf.selected() {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := runCase(tc, entry, conf, func() string {
				own := filepath.Join(dir, fmt.Sprintf("case%d", i))
				if err := os.Mkdir(own, 0o755); err != nil {
					panic(err)
				}
				return own
			})
			if len(r.errors) > 0 {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, Failure{Case: tc.name, Messages: r.errors})
			}
		})
	}
	wait.Wait()
	slices.SortFunc(failures, func(a, b Failure) int { return strings.Compare(a.Case, b.Case) })
	return failures, nil
}

// runCase runs one case in a goroutine of its own, which the case may leave at
// any point, and returns what it found.
func runCase(tc testCase, entry backend.Entry, conf config, dir func() string) *check {
	ctx, cancel := context.WithTimeout(context.Background(), caseTime)
	defer cancel()
	c := &check{ctx: ctx, cancel: cancel, tc: tc, entry: entry, warm: conf.warm, wrapped: conf.wrapped, makeDir: dir, token: newToken()}
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

// report tells a test what a case found.
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

// Errorf records that the backend does not pass.
func (c *check) Errorf(format string, args ...any) {
	c.errors = append(c.errors, fmt.Sprintf(format, args...))
}

// Fatalf records it and leaves the case.
func (c *check) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Logf records something worth knowing.
func (c *check) Logf(format string, args ...any) {
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// Skipf leaves the case because this machine cannot run it.
func (c *check) Skipf(format string, args ...any) {
	c.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// must leaves the case for an error of its own preparations.
func (c *check) must(err error) {
	if err != nil {
		c.Fatalf("preparing the case: %v", err)
	}
}
