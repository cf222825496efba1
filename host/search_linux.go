package host

import (
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// find looks at every folder that is known, reads those that have changed and
// those that are new, and answers from all of them.
func (s *Searcher) find() (*Found, error) {
	root, err := ignoringEINTR(func() (int, error) {
		return unix.Open(s.search.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be searched: %w", s.search.Root, &os.PathError{Op: "open", Path: s.search.Root, Err: err})
	}
	defer unix.Close(root)
	s.load()
	found := s.round(root)
	if len(found.Files) > 0 {
		s.tracked = markTracked(s.search.Root, found, s.tracked)
	}
	return found, nil
}

// remembered is what the index knows, nil where that is not likely to be all.
func (s *Searcher) remembered() *Found {
	s.load()
	if s.index == nil || s.index.unread > 0 {
		return nil
	}
	found := s.index.found(s.search.Root)
	if len(found.Files) > 0 {
		s.tracked = markTracked(s.search.Root, found, s.tracked)
	}
	return found
}

// round searches, first by the near index, and if that does not do by all.
func (s *Searcher) round(root int) *Found {
	if s.index != nil && s.index.later > 0 && s.searches > 0 && !s.apart && len(s.index.folders)+int(s.index.later) <= watchUpTo {
		// The kernel can tell of all of them, if all are looked at once.
		s.loadWhole()
		s.together = s.index != nil
	}
	if s.index != nil && s.index.unread == 0 {
		r := &searchRound{Searcher: s, root: root, limit: s.time, near: s.index.later > 0}
		r.listen()
		if found := r.run(); !r.beyond {
			r.settleWatch(found)
			return found
		}
		s.stopWatch()
	}
	r := &searchRound{Searcher: s, root: root, limit: s.time, partly: s.loadWhole()}
	switch {
	case s.index == nil:
		r.limit *= firstSearch
	case s.index.unread > 0:
		r.limit /= goingOn
	}
	found := r.run()
	r.settleWatch(found)
	return found
}

// loadWhole replaces the near index by the whole one, or by none. It reports
// whether there is one of the file.
func (s *Searcher) loadWhole() bool {
	if s.index == nil || s.index.later == 0 {
		return false
	}
	looked := s.index.looked
	s.index = nil
	data, err := readPrivateUpTo(s.wholeFile(), maxSearchIndex)
	if err != nil {
		return false
	}
	if s.index, err = decodeSearchIndex(data, s.key); err != nil {
		s.index = nil
		return false
	}
	s.index.looked = max(s.index.looked, looked)
	return true
}

// load reads the file, once.
func (s *Searcher) load() {
	if s.loaded || s.file == "" {
		return
	}
	s.loaded = true
	data, err := readPrivateUpTo(s.file, maxSearchIndex)
	if err != nil {
		return
	}
	if s.index, err = decodeSearchIndex(data, s.key); err == nil {
		s.onFile = true
	}
}

// A searchRound is one search.
type searchRound struct {
	*Searcher
	root     int
	reader   folderReader
	limit    time.Duration
	began    time.Time
	deadline time.Time

	old      []searchFolder
	state    []folderState // of the old ones
	children [][]int32     // the same, by their parents

	queue   []pending
	next    []searchFolder
	unseen  int
	slow    bool
	changed int // folders that are not as the index had them
	names   bool

	// near: the index is a near one. beyond: what has changed cannot be told by it.
	near, beyond bool
	// partly: only the near part of a whole index is looked at, the rest is taken
	// to be as it was.
	partly bool
	// stop, unless nil, ends the search of a Renew.
	stop <-chan struct{}

	// told: the kernel says which folders changed, and all others are the same.
	told      bool
	dirty     map[string]bool
	unwatched bool // a folder that was read cannot be watched
}

// listen asks what the kernel has told since the last search.
func (r *searchRound) listen() {
	if r.watch == nil {
		return
	}
	dirty, ok := r.watch.changed()
	if !ok || !r.sameRoot(r.root, emptyPath, unix.AT_EMPTY_PATH) {
		r.stopWatch()
		return
	}
	r.told, r.dirty = r.watched, dirty
}

// sameRoot reports whether a folder, as for stampOf, is the one that the index
// begins with.
func (s *Searcher) sameRoot(dir int, p *byte, flags int) bool {
	var now folderStamp
	was := &s.index.folders[0].stamp
	return stampOf(dir, p, flags, &now) == nil && now.dev == was.dev && now.ino == was.ino
}

// settleWatch begins a watch, goes on with it, or ends it.
func (r *searchRound) settleWatch(found *Found) {
	r.searches = min(r.searches+1, 2)
	switch {
	case r.watch != nil && (r.unwatched || !r.watchable(found)):
		r.stopWatch()
	case r.watch != nil:
		r.watched = true
	case r.watchable(found):
		r.startWatch()
	}
	if r.together && r.watch == nil {
		r.together, r.apart = false, true
		r.split()
	}
}

// A folderState is what became of a folder that the index has.
type folderState uint8

const (
	folderChanged folderState = iota // or not known well enough
	folderSame
	folderGone
)

// A pending folder is to be taken up.
type pending struct {
	path   string
	parent int32
	old    int32 // its place in the old index, -1 for a new one
}

func (r *searchRound) run() *Found {
	r.began = time.Now()
	if r.told && len(r.dirty) == 0 {
		return r.index.found(r.search.Root)
	}
	if r.index != nil {
		r.old = r.index.folders
		r.verify()
		if !slices.ContainsFunc(r.state, func(st folderState) bool { return st != folderSame }) {
			return r.index.found(r.search.Root)
		}
	}
	r.walk()
	if r.beyond || r.stopped() {
		return nil
	}
	r.replace()
	r.stale += r.changed
	found := r.index.found(r.search.Root)
	found.Unseen += r.unseen
	found.Slow = r.slow
	switch {
	case !r.near && !r.together && r.isLarge():
		if r.slow {
			r.index.unread = uint32(r.unseen) // with which the next search goes on
		}
		r.split()
		r.noteLater(found)
	case r.worthSaving(len(found.Files) > 0) || r.names && r.onFile:
		r.save()
	}
	return found
}

// replace makes an index of what the search has.
func (r *searchRound) replace() {
	next := &searchIndex{folders: r.next, looked: r.began.Unix()}
	if old := r.index; old != nil && (r.near || r.partly) {
		next.looked = old.looked
		next.later, next.unseen, next.omitted = old.later, old.unseen, old.omitted
	}
	r.index = next
}

// noteLater says of a search by the whole index what was not looked at.
func (r *searchRound) noteLater(found *Found) {
	if r.partly {
		found.Later, found.Looked = int(r.index.later), time.Unix(r.index.looked, 0).UTC()
	}
}

// verify looks at all folders that are known. A folder with room left out is read
// again once there is room.
func (r *searchRound) verify() {
	r.state = make([]folderState, len(r.old))
	if r.told {
		for i := range r.old {
			if !r.dirty[r.old[i].path] {
				r.state[i] = folderSame
			}
		}
		return
	}
	r.look()
	if r.near || len(r.old) >= r.folders {
		return
	}
	for i := range r.old {
		if r.old[i].left > 0 && r.state[i] == folderSame {
			r.state[i] = folderChanged
		}
	}
}

// look finds out what became of the folders that are to be looked at.
func (r *searchRound) look() {
	if r.stop != nil {
		r.lookUntil()
		return
	}
	if !r.partly || !r.isLarge() {
		verifyFolders(r.root, r.old, r.state)
		return
	}
	for i, marked := range r.index.nearMarks(r.prompt) {
		if marked {
			verifyPart(r.root, r.old[i:i+1], r.state[i:i+1])
		} else if r.old[i].settled {
			r.state[i] = folderSame
		}
	}
}
