package search

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/treewatch"
)

// A watch lets the kernel report whether anything changed that matters to a search. Then a
// search need not check every folder: it takes 0.02 ms instead of 0.7 ms for 500 folders, and
// a session searches before each command. Mounting a file system over a folder is not
// reported.
type watch struct {
	*treewatch.Inotify
	match *matcher
}

// watchFrom and watchUpTo are the sizes of trees that are watched. A smaller tree is checked
// just as fast, and the kernel limits the watches of a user, to 8,192 on small machines.
const (
	watchFrom = 64
	watchUpTo = 6000
)

// beginWatch begins to watch a tree when it is searched again. Afterwards everything has to
// be checked once, because changes from before the watch are not reported.
func (s *Searcher) beginWatch() {
	n := len(s.index)
	if s.watch != nil || s.unwatchable || !s.again || n < s.watchFrom || n > watchUpTo || !s.allLocal() {
		return
	}
	inotify, err := treewatch.OpenInotify()
	if err != nil { // the user has too many inotify instances
		s.unwatchable = true
		return
	}
	s.watch = &watch{Inotify: inotify, match: s.match}
	for i := range s.index {
		if !s.watch.add(s.search.Root, s.index[i].path) {
			s.endWatch()
			return
		}
	}
}

func (s *Searcher) allLocal() bool {
	return !slices.ContainsFunc(s.index, func(f folder) bool { return !f.local })
}

// settleWatch ends a watch that cannot report everything: a part of the tree was not seen,
// the tree has become too large, or other machines can change it.
func (s *Searcher) settleWatch(found *hostfs.Found) {
	if s.watch != nil && (found.Unseen > 0 || len(s.index) > watchUpTo || !s.allLocal()) {
		s.endWatch()
	}
	s.watched = s.watch != nil
}

// endWatch ends the watch for good: from now on searches check every folder.
func (s *Searcher) endWatch() {
	if s.watch != nil {
		s.watch.Close()
	}
	s.watch, s.watched, s.unwatchable = nil, false, true
}

// add watches a folder of the tree, and reports whether that is possible. It may be called
// twice for the same folder. A folder that is gone counts as watched, because its parent gets
// an event.
func (w *watch) add(root, p string) bool {
	_, err := w.Add(path.Join(root, p), treewatch.NameChanges)
	return err == nil || err == unix.ENOENT || err == unix.ENOTDIR
}

// quiet reports whether nothing that matters has changed since the last call: no folder, and
// no file that the search is for.
func (w *watch) quiet() bool {
	quiet := true
	complete := w.Read(func(_ int32, mask uint32, name string) {
		switch {
		case mask&(unix.IN_Q_OVERFLOW|unix.IN_UNMOUNT) != 0:
			quiet = false
		case mask&unix.IN_IGNORED != 0: // the folder is gone, and its parent gets an event
		case mask&unix.IN_ISDIR != 0 && !w.match.skip[name], w.match.matches(name):
			quiet = false
		}
	})
	return complete && quiet
}
