//go:build !linux

package host

import "time"

const watchFrom = 0

// A folderWatch tells nothing here, and what git tracks is not known.
type (
	folderWatch  struct{}
	trackedFiles struct{}
)

// find searches without an index and without a bound, and does not know what git
// tracks: such files are hidden, too.
func (s *Searcher) find() (*Found, error) { return FindIn(OS{}, s.search), nil }

func (s *Searcher) stopWatch() {}

// Still does not know: there is no index.
func (s *Searcher) Still(*Found) bool { return false }

// Renew has nothing to do: a search looks at all folders.
func (s *Searcher) Renew(<-chan struct{}) {}

// Renewable reports whether Renew has something to do.
func (s *Searcher) Renewable(time.Duration) bool { return false }

// Tracked is not known: see find.
func Tracked(string) bool { return false }

// remembered is nothing: there is no index.
func (s *Searcher) remembered() *Found { return nil }
