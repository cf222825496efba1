package host

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The bounds of one search. Within them a search is complete; beyond, it says how
// many folders it came across and did not look into.
const (
	// maxSearchFolders is how many folders of a tree are known at most. Each of them
	// costs a look at every start.
	maxSearchFolders = 20_000
	// searchTime is how long folders are read, those that are new or have changed.
	searchTime = 400 * time.Millisecond
	// firstSearch is how much longer the first search of a tree may take: it is paid
	// once, and what it does not see is not hidden.
	firstSearch = 4
	// unindexedTime is the same where nothing can be remembered, since every start
	// then pays for all of it.
	unindexedTime = 150 * time.Millisecond
)

// A Searcher repeats a [Search], and remembers the tree between: in memory, and in
// a file of cloche's cache folder for later processes. A folder that is what it was
// is not read again; one look tells. It is safe for concurrent use.
type Searcher struct {
	search Search
	key    [sha256.Size]byte
	file   string
	match  *nameMatcher

	mu     sync.Mutex
	index  *searchIndex // of the last search, nil before
	loaded bool
	// stale counts the folders that the file knows less well than memory.
	stale   int
	onFile  bool // the file is there
	folders int  // the bound, and the time to read
	time    time.Duration

	// searches counts up to two: a process that searches again will go on to.
	searches  int
	watchFrom int
	watch     *folderWatch
	watched   bool // the watch was there before the index was made
	tracked   *trackedFiles
}

// NewSearcher returns a Searcher that keeps its index in cloche's cache folder
// ([Dirs.Cache]). An empty folder means no file.
func NewSearcher(s Search, cache string) *Searcher {
	s.Names = slices.Clone(s.Names)
	key := searchKey(s)
	return &Searcher{search: s, key: key, file: searchFile(cache, key), match: newNameMatcher(s.Names), folders: maxSearchFolders, time: searchTime, watchFrom: watchFrom}
}

// Find searches the folder as it is now.
func (s *Searcher) Find() (*Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find()
}

// slowSearch is from how large an index file on a search is worth a goroutine of
// its own: some two hundred folders, and looking at fewer takes no longer than
// waking one.
const slowSearch = 16 << 10

// Begin begins a search and returns what waits for its end. A short one has ended
// by then.
func (s *Searcher) Begin() (wait func() (*Found, error)) {
	if info, err := os.Stat(s.file); err != nil || info.Size() < slowSearch {
		found, err := s.Find()
		return func() (*Found, error) { return found, err }
	}
	var found *Found
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = s.Find()
	}()
	return func() (*Found, error) {
		<-done
		return found, err
	}
}

// Close ends what a Searcher that searched more than once has the kernel tell.
func (s *Searcher) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopWatch()
}

// fewFolders is up to how many folders a tree is read as fast as an index.
const fewFolders = 24

// worthSaving reports whether the next process would gain from what is known.
// What the file lacks of a few folders is found out again, which costs less than
// writing it.
func (s *Searcher) worthSaving(matched bool) bool {
	n := len(s.index.folders)
	if !s.onFile {
		// Files that were found once are looked for first: nobody can bury them
		// under folders that are too many to look into.
		return n > fewFolders || matched
	}
	return s.stale > 8+n/32
}

// save replaces the file. A failure is no error: the next process looks for itself.
func (s *Searcher) save() {
	if s.file == "" {
		return
	}
	if !s.onFile {
		pruneSearches(filepath.Dir(s.file))
	}
	if writePrivate(s.file, s.index.encode(s.key)) == nil {
		s.onFile, s.stale = true, 0
	}
}

// maxSearches is how many indexes are kept, one for each folder that was worked
// on. The one that was replaced longest ago goes.
const maxSearches = 64

func pruneSearches(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < maxSearches {
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

// found returns the files that the index knows.
func (x *searchIndex) found(root string) *Found {
	out := &Found{Root: root, Folders: len(x.folders)}
	for i := range x.folders {
		f := &x.folders[i]
		out.Unseen += int(f.left)
		for _, name := range f.names {
			out.Files = append(out.Files, FoundFile{Path: entryPath(f.path, name)})
		}
	}
	out.sort()
	return out
}
