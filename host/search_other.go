//go:build !linux

package host

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
