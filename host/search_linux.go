package host

import (
	"fmt"
	"os"
	"path"
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
	r := &searchRound{Searcher: s, root: root, limit: s.time}
	if s.index == nil {
		r.limit *= firstSearch
	}
	r.listen()
	found := r.run()
	r.settleWatch(found)
	if len(found.Files) > 0 {
		s.tracked = markTracked(s.search.Root, found, s.tracked)
	}
	return found, nil
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
	if !ok || !r.sameRoot() {
		r.stopWatch()
		return
	}
	r.told, r.dirty = r.watched, dirty
}

// sameRoot reports whether the root is the folder that the index begins with.
func (r *searchRound) sameRoot() bool {
	var now folderStamp
	was := &r.index.folders[0].stamp
	return stampOf(r.root, emptyPath, unix.AT_EMPTY_PATH, &now) == nil && now.dev == was.dev && now.ino == was.ino
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
	r.index = &searchIndex{folders: r.next}
	r.stale += r.changed
	found := r.index.found(r.search.Root)
	found.Unseen += r.unseen
	found.Slow = r.slow
	if r.worthSaving(len(found.Files) > 0) || r.names && r.onFile {
		r.save()
	}
	return found
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
	verifyFolders(r.root, r.old, r.state)
	if len(r.old) >= r.folders {
		return
	}
	for i := range r.old {
		if r.old[i].left > 0 && r.state[i] == folderSame {
			r.state[i] = folderChanged
		}
	}
}

// walk takes up the folders that are known first, from the top down, and then
// those that are new: whoever makes many folders does not push others out.
func (r *searchRound) walk() {
	r.group()
	r.next = make([]searchFolder, 0, len(r.old)+16)
	r.queue = append(r.queue, pending{path: terminated("."), parent: -1, old: r.oldRoot()})
	var fresh []pending
	for len(r.queue) > 0 {
		p := r.queue[0]
		r.queue = r.queue[1:]
		fresh = append(fresh, r.take(p)...)
		if len(r.queue) == 0 {
			r.queue, fresh = r.room(fresh), nil
		}
	}
}

func (r *searchRound) oldRoot() int32 {
	if len(r.old) == 0 {
		return -1
	}
	return 0
}

// room leaves out the new folders that are too many.
func (r *searchRound) room(fresh []pending) []pending {
	n := max(0, r.folders-len(r.next))
	if n >= len(fresh) {
		return fresh
	}
	for _, p := range fresh[n:] {
		r.next[p.parent].left++
	}
	return fresh[:n]
}

// group lists the folders of the old index by their parents.
func (r *searchRound) group() {
	r.children = make([][]int32, len(r.old))
	for i := 1; i < len(r.old); i++ {
		p := r.old[i].parent
		r.children[p] = append(r.children[p], int32(i))
	}
}

// take adds a folder to the new index and queues what is known in it. It returns
// the folders in it that are new.
func (r *searchRound) take(p pending) (fresh []pending) {
	at := int32(len(r.next))
	if p.old >= 0 && r.state[p.old] == folderSame {
		same := r.old[p.old]
		same.parent = p.parent
		if r.keepAll(p.old, at) {
			same.settled = false
		}
		r.next = append(r.next, same)
		return nil
	}
	f := searchFolder{path: p.path, parent: p.parent}
	list, outcome := r.read(p.path)
	switch outcome {
	case readGone:
		if p.parent >= 0 {
			return nil
		}
	case readLate, readDenied:
		r.next = append(r.next, r.unread(f, p, at, list))
		return nil
	case readDone:
	}
	f.stamp, f.settled, f.watchable, f.names = list.stamp, list.settled, list.indexed, list.names
	r.note(&f, p.old)
	r.next = append(r.next, f)
	known := r.knownIn(p.old)
	for _, name := range list.folders {
		sub := pending{path: terminated(entryOf(p.path), name), parent: at, old: -1}
		if i, ok := known[name]; ok {
			sub.old = i
			r.queue = append(r.queue, sub)
		} else {
			fresh = append(fresh, sub)
		}
	}
	return fresh
}

// entryOf is what the paths of a folder's entries begin with.
func entryOf(folder string) string {
	if folder == "." {
		return ""
	}
	return folder + "/"
}

// unread is a folder that was not read, or not to its end, with what was known of
// it: a file that is still there stays hidden.
func (r *searchRound) unread(f searchFolder, p pending, at int32, list *folderList) searchFolder {
	f.stamp, f.settled, f.names = list.stamp, list.settled, list.names
	if p.old < 0 {
		return f
	}
	for _, name := range r.old[p.old].names {
		if !slices.Contains(f.names, name) {
			f.names = append(f.names, name)
		}
	}
	r.keepAll(p.old, at)
	return f
}

// keepAll queues all folders that the old index has in one, and reports whether
// one of them is gone.
func (r *searchRound) keepAll(old, at int32) (lost bool) {
	for _, i := range r.children[old] {
		if r.state[i] == folderGone {
			lost = true
			continue
		}
		r.queue = append(r.queue, pending{path: r.old[i].path, parent: at, old: i})
	}
	return lost
}

// knownIn are the folders that the old index has in one, by name.
func (r *searchRound) knownIn(old int32) map[string]int32 {
	if old < 0 || len(r.children[old]) == 0 {
		return nil
	}
	known := make(map[string]int32, len(r.children[old]))
	for _, i := range r.children[old] {
		known[path.Base(r.old[i].path)] = i
	}
	return known
}

// note counts what the file on disk would learn from a folder that was read.
func (r *searchRound) note(f *searchFolder, old int32) {
	if f.settled {
		r.changed++
	}
	if old < 0 && len(f.names) > 0 || old >= 0 && !slices.Equal(r.old[old].names, f.names) {
		r.names = true
	}
}

// A readOutcome says whether a folder was read.
type readOutcome uint8

const (
	readDone   readOutcome = iota
	readGone               // it is no folder any more
	readDenied             // the caller may not list it
	readLate               // the time is up
)

// read lists a folder, unless the time for that is up.
func (r *searchRound) read(p string) (*folderList, readOutcome) {
	now := time.Now()
	if r.deadline.IsZero() {
		r.deadline = now.Add(r.limit)
	}
	if now.After(r.deadline) {
		return r.late(&folderList{})
	}
	if r.watch != nil && !r.unwatched {
		r.unwatched = !r.watch.add(r.search.Root, p) // before it is read
	}
	list, err := r.reader.read(r.root, p, r.match, r.deadline)
	switch err {
	case nil:
		if !list.indexed && r.limit > unindexedTime {
			// Nothing of this is remembered: every start pays.
			r.deadline = r.deadline.Add(unindexedTime - r.limit)
			r.limit = unindexedTime
		}
		return list, readDone
	case errListTooLong:
		return r.late(list)
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return &folderList{}, readGone
	case unix.EACCES, unix.EPERM:
		return r.reader.closed(r.root, p, r.match), readDenied
	}
	// Too many open files, or a disk that fails: what was not seen is said.
	r.unseen++
	return &folderList{}, readDenied
}

func (r *searchRound) late(list *folderList) (*folderList, readOutcome) {
	r.unseen++
	r.slow = true
	list.settled = false
	return list, readLate
}
