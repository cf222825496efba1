package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/search"
)

// foundFiles searches for the files that the policy hides by name (paths.hide_found).
type foundFiles struct {
	once      sync.Once
	searchers []*search.Searcher // empty if the policy has no such rule
}

// find returns the snapshot with the current results of the searches of the workspace. It does
// not change a snapshot of another machine, or one that has results already.
func (e *Engine) find(snap *host.Snapshot) *host.Snapshot {
	if !e.searches(snap) {
		return snap
	}
	own := *snap
	own.Found = e.found.find()
	return &own
}

// beginFind starts the searches and returns at once. FoundFiles of the returned snapshot waits
// for them.
func (e *Engine) beginFind(snap *host.Snapshot) *host.Snapshot {
	if !e.searches(snap) {
		return snap
	}
	found := make(chan []*hostfs.Found, 1)
	go func() { found <- e.found.find() }()
	own := *snap
	own.SearchWith(func() []*hostfs.Found { return <-found })
	return &own
}

// searches reports whether there is something to search for, and makes the searchers.
func (e *Engine) searches(snap *host.Snapshot) bool {
	if snap.Searching() || !snap.Live() || e.config.Policy.Disabled {
		return false
	}
	e.found.once.Do(func() {
		for _, wanted := range resolve.Searches(&e.config.Policy, e.config.Workspace, e.config.Document) {
			e.found.searchers = append(e.found.searchers, search.New(wanted, snap.Dirs.Cache))
		}
	})
	return len(e.found.searchers) > 0
}

// find searches. The result of a search that failed is missing; the plan reports that.
func (f *foundFiles) find() []*hostfs.Found {
	all := make([]*hostfs.Found, 0, len(f.searchers))
	for _, s := range f.searchers {
		if found, err := s.Find(); err == nil {
			all = append(all, found)
		}
	}
	return all
}

// Searched returns what the search for files to hide (paths.hide_found) finds now: the files,
// and the number of folders searched. It is empty if the policy has no such rule.
func (e *Engine) Searched() ([]*hostfs.Found, error) {
	snap, err := e.Snapshot(nil)
	if err != nil || !snap.Live() || e.config.Policy.Disabled {
		return nil, err
	}
	var all []*hostfs.Found
	for _, wanted := range resolve.Searches(&e.config.Policy, e.config.Workspace, e.config.Document) {
		found, err := search.New(wanted, snap.Dirs.Cache).Find()
		if err != nil {
			return nil, fmt.Errorf("cloche: %w", err)
		}
		all = append(all, found)
	}
	return all, nil
}

// sameFound reports whether the searches still find the files of a snapshot.
func (e *Engine) sameFound(snap *host.Snapshot) bool {
	return len(e.found.searchers) == 0 || slices.EqualFunc(e.found.find(), snap.Found, (*hostfs.Found).Same)
}

// close ends the searches.
func (f *foundFiles) close() {
	f.once.Do(func() {}) // so that no searchers are made afterwards
	for _, s := range f.searchers {
		s.Close()
	}
}
