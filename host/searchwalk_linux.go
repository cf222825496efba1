package host

import (
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// walk takes up the folders that are known first, from the top down, and then
// those that are new: whoever makes many folders does not push others out.
func (r *searchRound) walk() {
	r.group()
	r.next = make([]searchFolder, 0, len(r.old)+16)
	r.queue = append(r.queue, pending{path: terminated("."), parent: -1, old: r.oldRoot()})
	var fresh []pending
	for len(r.queue) > 0 && !r.beyond {
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
	bound := r.folders
	if r.near {
		bound = min(bound, 2*r.prompt)
	}
	n := max(0, bound-len(r.next))
	if n >= len(fresh) {
		return fresh
	}
	if r.near {
		r.beyond = true
		return nil
	}
	for _, p := range fresh[n:] {
		r.next[p.parent].leaveOut(path.Base(p.path))
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
	if r.near && p.old >= 0 && r.old[p.old].left > 0 {
		r.sameLeft(&r.next[at], &r.old[p.old], fresh)
		return nil
	}
	return fresh
}

// sameLeft notes that the folders which a near index does not have are those that
// it did not have before, or that the whole one is needed.
func (r *searchRound) sameLeft(f, old *searchFolder, others []pending) {
	for _, p := range others {
		f.leaveOut(path.Base(p.path))
	}
	r.beyond = r.beyond || f.left != old.left || f.leftSum != old.leftSum
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
	f.left, f.leftSum = r.old[p.old].left, r.old[p.old].leftSum
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
	if r.stopped() {
		return r.late(&folderList{})
	}
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
