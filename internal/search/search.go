package search

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// The limits of one search. Within them it finds every file.
const (
	// maxFolders bounds the folders of a tree that are searched.
	maxFolders = 200_000
	// readTime bounds the time for reading folders that are new or have changed. It is for the
	// first search of a large tree: a million files in 50,000 folders take two seconds.
	readTime = 5 * time.Second
	// unindexedTime is the same for folders about which nothing can be remembered: every
	// start reads them.
	unindexedTime = 150 * time.Millisecond
	// maxFiles bounds the files that a search returns. Each of them becomes a mount.
	maxFiles = 1000
)

// A Searcher repeats a search. It is safe for concurrent use.
type Searcher struct {
	search hostfs.Search
	match  *matcher
	file   string // of the index, empty for none

	// The limits, which tests change.
	folders   int
	time      time.Duration
	watchFrom int

	mu      sync.Mutex
	index   []folder // nil before the first search
	loaded  bool     // the index file has been read
	onFile  bool     // there is an index file
	stale   int      // how many folders are newer in memory than in the file
	again   bool     // this process searched before
	watch   *watch   // nil for none
	watched bool     // every folder was checked after the watch began
	// unwatchable says that the kernel cannot report the changes of this tree, or no longer
	// can.
	unwatchable bool
	tracked     *trackedFiles
}

// New returns a Searcher that keeps its index in cloche's cache folder
// (host.Dirs.Cache). An empty folder means no file.
func New(s hostfs.Search, cache string) *Searcher {
	s.Root, s.Names = terminated(s.Root), slices.Clone(s.Names)
	return &Searcher{
		search: s, match: newMatcher(s.Names), file: indexFile(cache, s),
		folders: maxFolders, time: readTime, watchFrom: watchFrom,
	}
}

// Find searches the folder in its present state.
func (s *Searcher) Find() (*hostfs.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find()
}

// Close ends the watch.
func (s *Searcher) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatch()
}

// found returns the files in the index.
func (s *Searcher) found() *hostfs.Found {
	out := &hostfs.Found{Root: s.search.Root, Folders: len(s.index)}
	for i := range s.index {
		f := &s.index[i]
		for _, name := range f.names {
			out.Files = append(out.Files, hostfs.FoundFile{Path: entryPath(f.path, name)})
		}
	}
	arrange(out)
	return out
}

// arrange sorts the files and removes those above the limit.
func arrange(f *hostfs.Found) {
	slices.SortFunc(f.Files, func(a, b hostfs.FoundFile) int { return strings.Compare(a.Path, b.Path) })
	if n := len(f.Files) - maxFiles; n > 0 {
		f.Omitted, f.Files = n, f.Files[:maxFiles]
	}
}

// fewFolders is the number of folders up to which reading the tree is as fast as
// reading an index.
const fewFolders = 24

// worthSaving reports whether a new index file helps the next process. A few folders are read
// faster than the file is written. An index with found files is always saved: known folders are
// searched first, so that a file cannot be hidden behind more new folders than are searched.
func (s *Searcher) worthSaving(names bool) bool {
	switch {
	case s.file == "":
		return false
	case names:
		return true
	case !s.onFile:
		return len(s.index) > fewFolders
	}
	return s.stale > 8+len(s.index)/32
}

// maxIndexes bounds the number of index files, one for each workspace. The oldest one
// is removed.
const maxIndexes = 128

func prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < maxIndexes {
		return
	}
	oldest, when := "", time.Time{}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && (oldest == "" || info.ModTime().Before(when)) {
			oldest, when = e.Name(), info.ModTime()
		}
	}
	if oldest != "" {
		_ = os.Remove(filepath.Join(dir, oldest))
	}
}
