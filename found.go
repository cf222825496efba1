package cloche

import (
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
)

// foundFiles is what a session knows of the files that its policy hides where they
// are found.
type foundFiles struct {
	once      sync.Once
	searchers []*host.Searcher // none where the policy has no such rule
}

// find returns the snapshot with what searches of the workspace find now. One of
// another machine, and one that has been searched, stays as it is.
func (s *Session) find(snap *host.Snapshot) *host.Snapshot {
	own := s.beginFind(snap)
	own.FoundFiles()
	return own
}

// beginFind is find for who can do something else meanwhile: the searches are
// under way, and FoundFiles waits for them.
func (s *Session) beginFind(snap *host.Snapshot) *host.Snapshot {
	if snap.Found != nil || !snap.Live() || s.policy.Disabled {
		return snap
	}
	s.found.once.Do(func() {
		for _, search := range resolve.Searches(&s.policy, s.opts.workspace, s.opts.document) {
			s.found.searchers = append(s.found.searchers, host.NewSearcher(search, snap.Dirs.Cache))
		}
	})
	if len(s.found.searchers) == 0 {
		return snap
	}
	waits := make([]func() (*host.Found, error), 0, len(s.found.searchers))
	for _, searcher := range s.found.searchers {
		waits = append(waits, searcher.Begin())
	}
	own := *snap
	own.SearchWith(func() []*host.Found {
		all := make([]*host.Found, 0, len(waits))
		for _, wait := range waits {
			// A search that failed is missing, which the plan says.
			if found, err := wait(); err == nil {
				all = append(all, found)
			}
		}
		return all
	})
	return &own
}

// sameFound reports whether searches find the files that a snapshot has.
func (s *Session) sameFound(snap *host.Snapshot) bool {
	if len(s.found.searchers) == 0 {
		return true
	}
	now := *snap
	now.Found = nil
	return slices.EqualFunc(s.find(&now).Found, snap.Found, func(a, b *host.Found) bool {
		return slices.Equal(a.Files, b.Files) && a.Unseen == b.Unseen && a.Omitted == b.Omitted
	})
}

// close ends the searches.
func (f *foundFiles) close() {
	f.once.Do(func() {}) // after which there are no more
	for _, s := range f.searchers {
		s.Close()
	}
}
