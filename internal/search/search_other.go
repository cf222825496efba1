//go:build !linux

package search

import (
	"github.com/cloche-dev/cloche/internal/hostfs"
)

const watchFrom = 0

// A watch tells nothing here, and what git tracks is not known.
type (
	watch        struct{}
	trackedFiles struct{}
)

// find searches without an index and without a bound, and does not know what git
// tracks: such files are hidden, too.
func (s *Searcher) find() (*hostfs.Found, error) { return In(hostfs.OS{}, s.search), nil }

func (s *Searcher) endWatch() {}
