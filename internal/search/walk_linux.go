package search

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/ownfile"
)

// find checks every known folder, and reads those that are new or have changed.
func (s *Searcher) find() (*hostfs.Found, error) {
	root, err := ignoringEINTR(func() (int, error) {
		return unix.Open(s.search.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be searched: %w", s.search.Root, &os.PathError{Op: "open", Path: s.search.Root, Err: err})
	}
	defer unix.Close(root)
	s.load()
	found := s.unchanged(root)
	if found == nil {
		s.beginWatch()
		r := &round{Searcher: s, root: root}
		found = r.run()
		s.settleWatch(found)
	}
	s.again = true
	if len(found.Files) > 0 {
		s.tracked = markTracked(s.search.Root, found, s.tracked)
	}
	return found, nil
}

// unchanged returns the files of the last search, if the kernel has reported no change
// since, and nil otherwise.
func (s *Searcher) unchanged(root int) *hostfs.Found {
	if !s.watched {
		return nil
	}
	var now stamp
	was := &s.index[0].stamp
	if !s.watch.quiet() || stampOf(root, emptyPath, unix.AT_EMPTY_PATH, &now) != nil || now.dev != was.dev || now.ino != was.ino {
		return nil
	}
	return s.found()
}

// load reads the index file, once.
func (s *Searcher) load() {
	if s.loaded || s.file == "" {
		return
	}
	s.loaded = true
	if data, err := ownfile.ReadCache(s.file, maxIndex); err == nil {
		s.index, s.onFile = decode(data)
	}
}

// save replaces the index file. Errors are ignored: the next process then reads the
// folders.
func (s *Searcher) save() {
	if !s.onFile {
		prune(filepath.Dir(s.file))
	}
	if ownfile.WriteCache(s.file, encode(s.index)) == nil {
		s.onFile, s.stale = true, 0
	}
}

// A round is one search.
type round struct {
	*Searcher
	root     int
	reader   folderReader
	limit    time.Duration
	deadline time.Time // zero before the first folder is read

	old      []folder
	same     []bool    // for each folder of old: it has not changed
	children [][]int32 // for each folder of old: the folders in it

	queue   []pending
	next    []folder
	unseen  int
	slow    bool
	names   bool // the found files differ from the index
	changed int  // how many folders differ from the index
}

// A pending folder will be added to the index.
type pending struct {
	path   string
	parent int32
	old    int32 // its place in the old index, -1 for a new one
}

func (r *round) run() *hostfs.Found {
	r.limit = r.time
	r.old = r.index
	r.same = make([]bool, len(r.old))
	checkSame(r.root, r.old, r.same)
	if len(r.old) == 0 || slices.Contains(r.same, false) {
		r.walk()
		r.index = r.next
		r.stale += r.changed
		if r.worthSaving(r.names) {
			r.save()
		}
	}
	found := r.found()
	found.Unseen, found.Slow = r.unseen, r.slow
	return found
}

// walk adds the known folders first, from the top down, and then the new ones. So a command
// that makes many folders cannot displace known ones.
func (r *round) walk() {
	r.group()
	r.next = make([]folder, 0, len(r.old)+16)
	known := int32(-1)
	if len(r.old) > 0 {
		known = 0
	}
	r.queue = append(r.queue, pending{path: terminated("."), parent: -1, old: known})
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

// room removes the new folders that exceed the limit. Their parents are read again the
// next time.
func (r *round) room(fresh []pending) []pending {
	n := max(0, r.folders-len(r.next))
	if n >= len(fresh) {
		return fresh
	}
	for _, p := range fresh[n:] {
		r.next[p.parent].settled = false
	}
	r.unseen += len(fresh) - n
	return fresh[:n]
}

// group lists the folders of the old index by their parents.
func (r *round) group() {
	r.children = make([][]int32, len(r.old))
	for i := 1; i < len(r.old); i++ {
		p := r.old[i].parent
		r.children[p] = append(r.children[p], int32(i))
	}
}

// take adds a folder to the new index and queues the known folders in it. It returns
// the new folders in it.
func (r *round) take(p pending) (fresh []pending) {
	at := int32(len(r.next))
	if p.old >= 0 && r.same[p.old] {
		same := r.old[p.old]
		same.parent = p.parent
		r.next = append(r.next, same)
		r.queueKnown(p.old, at)
		return nil
	}
	list, outcome := r.read(p.path)
	if outcome == readGone && p.parent >= 0 {
		return nil
	}
	f := folder{path: p.path, parent: p.parent, stamp: list.stamp, settled: list.settled, local: list.local, names: list.names}
	if outcome == readNot && p.old >= 0 {
		// Keep the known names: a file that still exists stays hidden.
		f.names = joined(f.names, r.old[p.old].names)
		r.queueKnown(p.old, at)
	}
	r.note(&f, p.old)
	r.next = append(r.next, f)
	if outcome != readDone {
		return nil
	}
	known := r.knownIn(p.old)
	for _, name := range list.folders {
		sub := pending{path: terminated(entryPath(p.path, name)), parent: at, old: -1}
		if i, ok := known[name]; ok {
			sub.old = i
			r.queue = append(r.queue, sub)
		} else {
			fresh = append(fresh, sub)
		}
	}
	return fresh
}

func joined(names, more []string) []string {
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// queueKnown queues all folders that the old index has in a folder.
func (r *round) queueKnown(old, at int32) {
	for _, i := range r.children[old] {
		r.queue = append(r.queue, pending{path: r.old[i].path, parent: at, old: i})
	}
}

// knownIn returns the folders that the old index has in a folder, by name.
func (r *round) knownIn(old int32) map[string]int32 {
	if old < 0 || len(r.children[old]) == 0 {
		return nil
	}
	known := make(map[string]int32, len(r.children[old]))
	for _, i := range r.children[old] {
		known[path.Base(r.old[i].path)] = i
	}
	return known
}

// note counts how many folders differ from the index file, and whether other files were
// found.
func (r *round) note(f *folder, old int32) {
	if f.settled {
		r.changed++
	}
	if old < 0 && len(f.names) > 0 || old >= 0 && !slices.Equal(r.old[old].names, f.names) {
		r.names = true
	}
}

// A readOutcome is the result of reading a folder.
type readOutcome uint8

const (
	readDone readOutcome = iota
	readGone             // it is no longer a folder
	readNot              // it may not be listed, or there was no time
)

// read lists a folder, unless there is no time left.
func (r *round) read(p string) (*folderList, readOutcome) {
	now := time.Now()
	if r.deadline.IsZero() {
		r.deadline = now.Add(r.limit)
	}
	if now.After(r.deadline) {
		return r.late(&folderList{})
	}
	if r.watch != nil && !r.watch.add(r.search.Root, p) { // before it is read
		r.endWatch()
	}
	list, err := r.reader.read(r.root, p, r.match, r.deadline)
	switch err {
	case nil:
		if !list.local && r.limit > unindexedTime {
			// Nothing about this folder can be remembered, so every start reads it: the shorter
			// time limit applies.
			r.deadline = r.deadline.Add(unindexedTime - r.limit)
			r.limit = unindexedTime
		}
		return list, readDone
	case errListTooLong:
		return r.late(list)
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return &folderList{}, readGone
	case unix.EACCES, unix.EPERM:
		return r.reader.closed(r.root, p, r.match), readNot
	}
	// There are too many open files, or the disk fails. The folder counts as not seen.
	r.unseen++
	return &folderList{}, readNot
}

func (r *round) late(list *folderList) (*folderList, readOutcome) {
	r.unseen++
	r.slow = true
	list.settled = false
	return list, readNot
}

// One more goroutine is used for each manyFolders folders, up to searchThreads in total. Each
// takes chunk folders at a time, so that on a busy machine the others do not wait for one
// that starts late.
const (
	manyFolders   = 400
	searchThreads = 6
	chunk         = 64
)

// checkSame finds out which folders have not changed.
func checkSame(root int, folders []folder, same []bool) {
	others := min(len(folders)/manyFolders, searchThreads-1, runtime.GOMAXPROCS(0)-1)
	var taken atomic.Int64
	work := func() {
		for {
			to := int(taken.Add(chunk))
			from := to - chunk
			if from >= len(folders) {
				return
			}
			for i := from; i < min(to, len(folders)); i++ {
				f, now := &folders[i], stamp{}
				same[i] = f.settled && stampOf(root, unsafe.StringData(f.path), unix.AT_SYMLINK_NOFOLLOW, &now) == nil && now == f.stamp
			}
		}
	}
	var all sync.WaitGroup
	for range others {
		all.Go(work)
	}
	work()
	all.Wait()
}
