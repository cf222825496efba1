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

// The bounds of one search. Within them it finds every file.
const (
	// maxFolders bounds the folders of a tree that are searched.
	maxFolders = 200_000
	// readTime bounds the time for reading folders that are new or have changed. It is for the
	// first search of a large tree: a million files in 50,000 folders take two seconds.
	readTime = 5 * time.Second
	// unindexedTime is the same where nothing can be remembered: then every start reads all
	// folders.
	unindexedTime = 150 * time.Millisecond
	// maxFiles bounds the files that a search returns. Each of them becomes a mount.
	maxFiles = 1000
)

// A Searcher repeats a search. It is safe for concurrent use.
type Searcher struct {
	search hostfs.Search
	match  *matcher
	file   string // of the index, empty for none

	// The bounds, which tests change.
	folders   int
	time      time.Duration
	watchFrom int

	mu      sync.Mutex
	index   []folder // what is known of the tree, nil before the first search
	loaded  bool     // the index file has been read
	onFile  bool     // there is an index file
	stale   int      // how many folders are newer in memory than in the file
	again   bool     // this process has searched before
	watch   *watch   // nil for none
	watched bool     // everything was checked after the watch began
	// unwatchable: the kernel cannot report the changes of this tree, or no longer.
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

// Find searches the folder as it is now.
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

// found returns the files that are known.
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

// arrange sorts the files and omits those that are too many.
func arrange(f *hostfs.Found) {
	slices.SortFunc(f.Files, func(a, b hostfs.FoundFile) int { return strings.Compare(a.Path, b.Path) })
	if n := len(f.Files) - maxFiles; n > 0 {
		f.Omitted, f.Files = n, f.Files[:maxFiles]
	}
}

// fewFolders is up to how many folders reading a tree is as fast as reading an index.
const fewFolders = 24

// worthSaving reports whether the next process would gain from a new index file. A few folders
// are read again faster than the file is written. Files that were found are always saved: known
// folders are searched first, so that nobody can bury a file under more folders than are
// searched.
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

// maxIndexes bounds the index files, one for each workspace. The oldest one is removed.
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
