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
	// maxSearchFolders is how many folders of a tree are known at most.
	maxSearchFolders = 60_000
	// wholeFolders is up to how many folders every search looks at all of them.
	wholeFolders = 500
	// promptFolders is how many of a larger tree are looked at by every search. A look
	// takes about 2 µs, most of it for memory that no cache has, and a start does not
	// get longer with a tree. The others wait for Renew.
	promptFolders = 128
	// searchTime is how long folders are read, those that are new or have changed.
	searchTime = 400 * time.Millisecond
	// firstSearch is how much longer the first search of a tree may take: it is paid
	// once, and what it does not see is not hidden.
	firstSearch = 4
	// goingOn is how much shorter a search is that goes on with one which ran out of
	// time: every start until the end pays, and Renew comes to it sooner.
	goingOn = 4
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
	folders int  // the bounds, and the time to read
	whole   int
	prompt  int
	time    time.Duration
	// renewing: a Renew is under way.
	renewing bool
	// together: all of a tree that has a near index is kept in memory, to be watched;
	// apart: it cannot be.
	together, apart bool

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
	s.Root, s.Names = terminated(s.Root), slices.Clone(s.Names)
	key := searchKey(s)
	return &Searcher{search: s, key: key, file: searchFile(cache, key), match: newNameMatcher(s.Names), folders: maxSearchFolders, whole: wholeFolders, prompt: promptFolders, time: searchTime, watchFrom: watchFrom}
}

// Find searches the folder as it is now.
func (s *Searcher) Find() (*Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find()
}

// slowSearch is from how large an index file on a search is worth a goroutine of
// its own: some sixty folders, and looking at fewer takes no longer than waking
// one.
const slowSearch = 4 << 10

// shortFolders is the same for an index in memory.
const shortFolders = 60

// A Pending search is under way.
type Pending struct {
	known, done chan struct{}
	before      *Found
	found       *Found
	err         error
}

// Begin begins a search. A short one has ended when it returns.
func (s *Searcher) Begin() *Pending {
	p := &Pending{known: make(chan struct{}), done: make(chan struct{})}
	if s.isShort() {
		p.end(s.Find())
		return p
	}
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.before = s.remembered(); p.before != nil {
			close(p.known)
		}
		p.end(s.find())
	}()
	return p
}

// isShort reports whether the search is not worth a goroutine.
func (s *Searcher) isShort() bool {
	if !s.mu.TryLock() {
		return false // another one is under way
	}
	index := s.index
	s.mu.Unlock()
	if index != nil {
		return len(index.folders) < shortFolders
	}
	info, err := os.Stat(s.file)
	return err != nil || info.Size() < slowSearch
}

func (p *Pending) end(found *Found, err error) {
	p.found, p.err = found, err
	if p.before == nil {
		p.before = found
		close(p.known)
	}
	close(p.done)
}

// Known returns what earlier searches knew, as soon as that is there. What follows
// from it counts only if Wait returns the same: see [Pending.Confirmed].
func (p *Pending) Known() (*Found, error) {
	<-p.known
	if p.before == nil {
		return p.Wait()
	}
	return p.before, nil
}

// Wait returns what the search found.
func (p *Pending) Wait() (*Found, error) {
	<-p.done
	return p.found, p.err
}

// Confirmed waits for the end, and reports whether Known was right.
func (p *Pending) Confirmed() bool {
	<-p.done
	return p.err == nil && p.found.Same(p.before)
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

// save replaces the files: that of the near index, and where there is more that of
// the whole one before. It reports whether the folders that are not near are on
// file. A failure is no error: the next process looks for itself.
func (s *Searcher) save() bool {
	if s.file == "" {
		return false
	}
	if !s.onFile {
		pruneSearches(filepath.Dir(s.file))
	}
	near := s.near()
	if near != s.index && writePrivate(s.wholeFile(), s.index.encode(s.key)) != nil {
		return false
	}
	if writePrivate(s.file, near.encode(s.key)) == nil {
		s.onFile, s.stale = true, 0
	}
	return s.onFile && near != s.index
}

// wholeFile is where the whole index of a large tree is kept.
func (s *Searcher) wholeFile() string { return s.file + ".all" }

// split saves a whole index and goes on with its near part. Where it cannot be
// saved all of it is kept in memory, and looked at each time.
func (s *Searcher) split() {
	if s.save() {
		s.index = s.near()
	}
}

// near is what a start looks at of the index: all of it, unless the tree is large.
func (s *Searcher) near() *searchIndex {
	if !s.isLarge() {
		return s.index
	}
	return s.index.near(s.prompt)
}

func (s *Searcher) isLarge() bool { return len(s.index.folders) > s.whole }

// maxSearches is how many files are kept, one or two for each folder that was worked
// on. The one that was replaced longest ago goes.
const maxSearches = 128

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
	out := &Found{Root: root, Folders: len(x.folders) + int(x.later), Later: int(x.later)}
	if x.later > 0 {
		out.Unseen, out.Looked = int(x.unseen), time.Unix(x.looked, 0).UTC()
	}
	for i := range x.folders {
		f := &x.folders[i]
		if x.later == 0 {
			out.Unseen += int(f.left)
		}
		for _, name := range f.names {
			out.Files = append(out.Files, FoundFile{Path: entryPath(f.path, name)})
		}
	}
	out.sort()
	out.Omitted = max(out.Omitted, int(x.omitted))
	return out
}
