package search

import (
	"bytes"
	"path"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// A watch has the kernel tell whether anything that a search is about has changed, so
// that a search need not look at every folder: the commands of a session come by the
// dozen. It tells nothing of a file system that is mounted over one of them.
type watch struct {
	fd     int
	match  *matcher
	buffer []byte
	end    func()
}

const (
	// watchFrom and watchUpTo are the sizes of trees that are watched. A small one
	// is looked at as fast, and the kernel bounds the watches of a user, to 8,192 on
	// small machines.
	watchFrom = 64
	watchUpTo = 6000

	watchedChanges = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
)

// beginWatch begins to watch a tree that is searched once more. Everything has to be
// looked at after that: what changed before a folder was watched is not told.
func (s *Searcher) beginWatch() {
	n := len(s.index)
	if s.watch != nil || s.unwatchable || !s.again || n < s.watchFrom || n > watchUpTo ||
		slices.ContainsFunc(s.index, func(f folder) bool { return !f.local }) {
		return
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil { // the user has too many
		s.unwatchable = true
		return
	}
	s.watch = &watch{fd: fd, match: s.match, buffer: make([]byte, 16<<10), end: sync.OnceFunc(func() { unix.Close(fd) })}
	runtime.AddCleanup(s.watch, func(end func()) { end() }, s.watch.end)
	for i := range s.index {
		if !s.watch.add(s.search.Root, s.index[i].path) {
			s.endWatch()
			return
		}
	}
}

// settleWatch ends a watch that cannot tell all: a part of the tree was not seen, or
// has become too large, or is changed by others than this kernel.
func (s *Searcher) settleWatch(found *hostfs.Found) {
	if s.watch != nil && (found.Unseen > 0 || len(s.index) > watchUpTo || slices.ContainsFunc(s.index, func(f folder) bool { return !f.local })) {
		s.endWatch()
	}
	s.watched = s.watch != nil
}

// endWatch makes this and the next searches look for themselves.
func (s *Searcher) endWatch() {
	if s.watch != nil {
		s.watch.end()
	}
	s.watch, s.watched, s.unwatchable = nil, false, true
}

// add asks the kernel about a folder of the tree, and reports whether it will tell. It may
// be asked about the same folder twice. One that is gone has been told of by its parent.
func (w *watch) add(root, p string) bool {
	_, err := unix.InotifyAddWatch(w.fd, path.Join(root, p), watchedChanges|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	return err == nil || err == unix.ENOENT || err == unix.ENOTDIR
}

// quiet reports whether nothing has changed since the last time.
func (w *watch) quiet() bool {
	quiet := true
	for {
		n, err := unix.Read(w.fd, w.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return quiet
		case err != nil || n <= 0:
			return false
		default:
			quiet = w.matterless(w.buffer[:n]) && quiet
		}
	}
}

// matterless reports whether no event is about a folder, or a file of interest.
func (w *watch) matterless(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&events[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
		switch {
		case event.Mask&(unix.IN_Q_OVERFLOW|unix.IN_UNMOUNT) != 0:
			return false
		case event.Mask&unix.IN_IGNORED != 0: // it is gone, as its parent has told
		case event.Mask&unix.IN_ISDIR != 0 && !w.match.skip[string(name)], w.match.matches(string(name)):
			return false
		}
		events = events[end:]
	}
	return true
}
