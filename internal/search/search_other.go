//go:build !linux

package search

import "github.com/cloche-dev/cloche/internal/hostfs"

const watchFrom = 0

// There is no watch on this system, and what git tracks is not known.
type (
	watch        struct{}
	trackedFiles struct{}
)

// find searches without an index and without bounds. Files that git tracks are hidden, too.
func (s *Searcher) find() (*hostfs.Found, error) { return In(hostfs.OS{}, s.search), nil }

func (s *Searcher) endWatch() {}
