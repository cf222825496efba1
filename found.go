package cloche

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/resolve"
)

// foundFiles is what a session knows of the files that its policy hides where they
// are found.
type foundFiles struct {
	once      sync.Once
	searchers []*host.Searcher // none where the policy has no such rule
	mu        sync.Mutex
	renewals  sync.WaitGroup
	stop      chan struct{} // ends the renewals; made with the first
	closed    bool
	age       *time.Duration // renewAge, unless a test says otherwise
}

func (f *foundFiles) renewAfter() time.Duration {
	if f.age != nil {
		return *f.age
	}
	return renewAge
}

// renewAge is for how long what is known of folders that no start looks at is good
// enough: to look at 50,000 takes a tenth of a second of one processor.
const renewAge = 10 * time.Second

// renewDelay is how long a command runs before the folders are looked at that no
// start waits for: short commands do not share the processor with that.
const renewDelay = 100 * time.Millisecond

// renewBeside looks at these folders while a command runs, until done or the end of
// the session, so that the next command's search knows what is new in them.
func (f *foundFiles) renewBeside(done <-chan struct{}) {
	due := slices.DeleteFunc(slices.Clone(f.searchers), func(s *host.Searcher) bool { return !s.Renewable(f.renewAfter()) })
	if len(due) > 0 {
		// A timer, and no goroutine: most commands have ended before there is one.
		time.AfterFunc(renewDelay, func() { f.renew(due, done) })
	}
}

// renew is what renewBeside does, unless the command or the session has ended.
func (f *foundFiles) renew(due []*host.Searcher, done <-chan struct{}) {
	end, ok := f.beginRenewal(done)
	if !ok {
		return
	}
	defer f.renewals.Done()
	stop := make(chan struct{})
	f.renewals.Go(func() {
		defer close(stop)
		select {
		case <-done: // never, if it is nil
		case <-end:
		}
	})
	for _, s := range due {
		s.Renew(stop)
	}
}

// beginRenewal adds one to the renewals that close waits for, which closes end
// before.
func (f *foundFiles) beginRenewal(done <-chan struct{}) (end <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-done:
		return nil, false
	default:
	}
	if f.closed {
		return nil, false
	}
	if f.stop == nil {
		f.stop = make(chan struct{})
	}
	f.renewals.Add(1)
	return f.stop, true
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
	own, _ := s.beginFindBy(snap, (*host.Pending).Wait)
	return own
}

// hastyFind is beginFind for who makes a plan by what is known, and afterwards
// waits until that is confirmed. Where it is not, another plan has to be made.
func (s *Session) hastyFind(snap *host.Snapshot) (own *host.Snapshot, confirmed func() bool) {
	own, all := s.beginFindBy(snap, (*host.Pending).Known)
	return own, func() bool {
		return !slices.ContainsFunc(all, func(p *host.Pending) bool { return !p.Confirmed() })
	}
}

func (s *Session) beginFindBy(snap *host.Snapshot, wait func(*host.Pending) (*host.Found, error)) (*host.Snapshot, []*host.Pending) {
	if snap.Searching() || !snap.Live() || s.policy.Disabled {
		return snap, nil
	}
	s.found.once.Do(func() {
		for _, search := range resolve.Searches(&s.policy, s.opts.workspace, s.opts.document) {
			s.found.searchers = append(s.found.searchers, host.NewSearcher(search, snap.Dirs.Cache))
		}
	})
	if len(s.found.searchers) == 0 {
		return snap, nil
	}
	pending := make([]*host.Pending, 0, len(s.found.searchers))
	for _, searcher := range s.found.searchers {
		pending = append(pending, searcher.Begin())
	}
	own := *snap
	own.SearchWith(func() []*host.Found {
		all := make([]*host.Found, 0, len(pending))
		for _, p := range pending {
			// A search that failed is missing, which the plan says.
			if found, err := wait(p); err == nil {
				all = append(all, found)
			}
		}
		return all
	})
	return &own, pending
}

// Searched returns what the next command's search for files to hide
// (paths.hide_found) will come to, as things are: which files, how many folders are
// known, and how many of them a start does not look at again ([host.Found.Later]).
// It is empty where the policy has no such rule.
func (s *Session) Searched() ([]*host.Found, error) {
	snap, err := s.snapshot(nil)
	if err != nil || !snap.Live() || s.policy.Disabled {
		return nil, err
	}
	var all []*host.Found
	for _, search := range resolve.Searches(&s.policy, s.opts.workspace, s.opts.document) {
		var found *host.Found
		for range 2 { // the first search of a tree looks at all of it, later ones do not
			if found, err = host.NewSearcher(search, snap.Dirs.Cache).Find(); err != nil {
				return nil, fmt.Errorf("cloche: %w", err)
			}
		}
		all = append(all, found)
	}
	return all, nil
}

// sameFound reports whether searches find the files that a snapshot has.
func (s *Session) sameFound(snap *host.Snapshot) bool {
	if len(s.found.searchers) == 0 || s.found.still(snap.Found) {
		return true
	}
	now := *snap
	now.Found = nil
	return slices.EqualFunc(s.find(&now).Found, snap.Found, (*host.Found).Same)
}

// still reports whether no search is needed to know that they find the same.
func (f *foundFiles) still(found []*host.Found) bool {
	if len(found) != len(f.searchers) {
		return false
	}
	for i, s := range f.searchers {
		if !s.Still(found[i]) {
			return false
		}
	}
	return true
}

// close ends the searches.
func (f *foundFiles) close() {
	f.once.Do(func() {}) // after which there are no more
	f.mu.Lock()
	f.closed = true
	if f.stop != nil {
		close(f.stop)
	}
	f.mu.Unlock()
	f.renewals.Wait()
	for _, s := range f.searchers {
		s.Close()
	}
}
