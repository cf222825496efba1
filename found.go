package cloche

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/search"
)

// foundFiles is what a session knows of the files that its policy hides where they
// are found.
type foundFiles struct {
	once      sync.Once
	searchers []*search.Searcher // none where the policy has no such rule
}

// find returns the snapshot with what searches of the workspace find now. One of
// another machine, and one that has been searched, stays as it is.
func (s *Session) find(snap *host.Snapshot) *host.Snapshot {
	if !s.searches(snap) {
		return snap
	}
	own := *snap
	own.Found = s.found.find()
	return &own
}

// beginFind is find for who can do something else meanwhile: the searches are
// under way, and FoundFiles waits for them.
func (s *Session) beginFind(snap *host.Snapshot) *host.Snapshot {
	if !s.searches(snap) {
		return snap
	}
	found := make(chan []*host.Found, 1)
	go func() { found <- s.found.find() }()
	own := *snap
	own.SearchWith(func() []*host.Found { return <-found })
	return &own
}

// searches reports whether there is something to search for, and makes what searches for it.
func (s *Session) searches(snap *host.Snapshot) bool {
	if snap.Searching() || !snap.Live() || s.policy.Disabled {
		return false
	}
	s.found.once.Do(func() {
		for _, wanted := range resolve.Searches(&s.policy, s.opts.workspace, s.opts.document) {
			s.found.searchers = append(s.found.searchers, search.New(wanted, snap.Dirs.Cache))
		}
	})
	return len(s.found.searchers) > 0
}

// find searches. A search that failed is missing, which the plan says.
func (f *foundFiles) find() []*host.Found {
	all := make([]*host.Found, 0, len(f.searchers))
	for _, s := range f.searchers {
		if found, err := s.Find(); err == nil {
			all = append(all, found)
		}
	}
	return all
}

// Searched returns what the search for files to hide (paths.hide_found) finds now: which
// files, and in how many folders. It is empty where the policy has no such rule.
func (s *Session) Searched() ([]*host.Found, error) {
	snap, err := s.snapshot(nil)
	if err != nil || !snap.Live() || s.policy.Disabled {
		return nil, err
	}
	var all []*host.Found
	for _, wanted := range resolve.Searches(&s.policy, s.opts.workspace, s.opts.document) {
		found, err := search.New(wanted, snap.Dirs.Cache).Find()
		if err != nil {
			return nil, fmt.Errorf("cloche: %w", err)
		}
		all = append(all, found)
	}
	return all, nil
}

// sameFound reports whether searches find the files that a snapshot has.
func (s *Session) sameFound(snap *host.Snapshot) bool {
	return len(s.found.searchers) == 0 || slices.EqualFunc(s.found.find(), snap.Found, (*host.Found).Same)
}

// close ends the searches.
func (f *foundFiles) close() {
	f.once.Do(func() {}) // after which there are no more
	for _, s := range f.searchers {
		s.Close()
	}
}
