package backendtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/backend"
)

// A Failure is a case that the backend does not pass.
type Failure struct {
	// Case is the name of the case.
	Case string
	// Messages say what is wrong.
	Messages []string
}

// String returns the failure as text.
func (f Failure) String() string { return f.Case + ": " + strings.Join(f.Messages, "; ") }

// Check runs the cases like [Run] and returns those that fail, for tests that a backend
// which is broken on purpose is found out. The files of the cases are made below dir.
func Check(dir string, entry backend.Entry, o Options) ([]Failure, error) {
	if reason := unready(); reason != "" {
		return nil, fmt.Errorf("backendtest: %s", reason)
	}
	var (
		mu       sync.Mutex
		failures []Failure
		wait     sync.WaitGroup
	)
	slots := make(chan struct{}, workers)
	for i, tc := range o.selected() {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := runCase(tc, entry, o, func() string {
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
