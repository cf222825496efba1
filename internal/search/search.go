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

// The bounds of one search. Within them it is complete.
const (
	// maxFolders is how many folders of a tree are looked at.
	maxFolders = 200_000
	// readTime is how long folders are read, those that are new or have changed. It is for
	// the first search of a large tree: a million files in 50,000 folders take two seconds.
	readTime = 5 * time.Second
	// unindexedTime is the same where nothing can be remembered, since every start then
	// pays for all of it.
	unindexedTime = 150 * time.Millisecond
	// maxFiles is how many files a search names. Each of them becomes a mount.
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
	loaded  bool     // the file has been looked for
	onFile  bool     // it was there
	stale   int      // how many folders the file knows less well than memory
	again   bool     // this process has searched before
	watch   *watch   // nil for none
	watched bool     // everything was looked at after the watch began
	// unwatchable: the kernel cannot tell of this tree, or no longer.
	unwatchable bool
	tracked     *trackedFiles
}

// New returns a Searcher that keeps its index in cloche's cache folder
// ([host.Dirs.Cache]). An empty folder means no file.
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

// Close ends what the kernel was asked to tell.
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

// arrange puts the files in order and leaves out those that are too many.
func arrange(f *hostfs.Found) {
	slices.SortFunc(f.Files, func(a, b hostfs.FoundFile) int { return strings.Compare(a.Path, b.Path) })
	if n := len(f.Files) - maxFiles; n > 0 {
		f.Omitted, f.Files = n, f.Files[:maxFiles]
	}
}

// fewFolders is up to how many folders a tree is read as fast as an index.
const fewFolders = 24

// worthSaving reports whether the next process would gain from what is known. What the
// file lacks of a few folders is found out again, which costs less than writing it. Files
// that were found are always on file: they are looked for first, so that nobody can bury
// them under more folders than are looked at.
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

// maxIndexes is how many files are kept, one for each folder that was worked on. The one
// that was replaced longest ago goes.
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
