package host

import (
	"bytes"
	"path"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A folderWatch has the kernel tell which folders of a tree change, so that a
// search need not look at every one of them: the commands of a session come by
// the dozen, and most change a few folders. It tells nothing of a file system that
// is mounted over one of them.
type folderWatch struct {
	fd     int
	match  *nameMatcher
	paths  map[int32]string
	known  map[string]bool
	buffer []byte
	end    func()
}

const (
	// watchFrom and watchUpTo are the sizes of trees that are watched. A small one
	// is read as fast, and the kernel bounds the watches of a user, to 8,192 on
	// small machines.
	watchFrom = 64
	watchUpTo = 6000

	watchedChanges = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// newFolderWatch returns nil where the user has too many.
func newFolderWatch(match *nameMatcher) *folderWatch {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &folderWatch{fd: fd, match: match, paths: map[int32]string{}, known: map[string]bool{}, buffer: make([]byte, 16<<10)}
	w.end = sync.OnceFunc(func() { unix.Close(fd) })
	runtime.AddCleanup(w, func(end func()) { end() }, w.end)
	return w
}

// add asks the kernel about a folder of the tree, and reports whether it will
// tell. Two names that lead to one folder are one too many.
func (w *folderWatch) add(root, p string) bool {
	if w.known[p] {
		return true
	}
	id, err := unix.InotifyAddWatch(w.fd, path.Join(root, p), watchedChanges|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	if other := w.paths[int32(id)]; err != nil || other != "" && other != p {
		return false
	}
	w.paths[int32(id)] = p
	w.known[p] = true
	return true
}

// changed returns the folders in which something that a search is about has
// changed. ok is false where the kernel did not tell all, or where folders were
// moved: their watches then go by other names.
func (w *folderWatch) changed() (folders map[string]bool, ok bool) {
	for {
		n, err := unix.Read(w.fd, w.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return folders, true
		case err != nil || n <= 0:
			return nil, false
		default:
			if folders, ok = w.parse(w.buffer[:n], folders); !ok {
				return nil, false
			}
		}
	}
}

func (w *folderWatch) parse(b []byte, folders map[string]bool) (map[string]bool, bool) {
	if folders == nil {
		folders = map[string]bool{}
	}
	for len(b) >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
		if !w.note(event, string(name), folders) {
			return nil, false
		}
		b = b[end:]
	}
	return folders, true
}

// note takes one event, and reports whether the watch is still good.
func (w *folderWatch) note(event *unix.InotifyEvent, name string, folders map[string]bool) bool {
	p, known := w.paths[event.Wd]
	if event.Mask&unix.IN_IGNORED != 0 { // it is gone, as its parent has said
		delete(w.known, p)
		delete(w.paths, event.Wd)
		return true
	}
	if !known || event.Mask&(unix.IN_MOVE_SELF|unix.IN_Q_OVERFLOW|unix.IN_UNMOUNT) != 0 {
		return false
	}
	if event.Mask&unix.IN_ISDIR == 0 || name == "" {
		if name == "" || w.match.matches(name) {
			folders[p] = true
		}
		return true
	}
	if event.Mask&(unix.IN_MOVED_FROM|unix.IN_MOVED_TO) != 0 {
		return w.match.skip[name]
	}
	// A folder that was removed may have been made again, and be told of as gone
	// only later, when nobody has it open any more.
	sub := entryPath(p, name)
	folders[p], folders[sub] = true, true
	if event.Mask&unix.IN_DELETE != 0 {
		delete(w.known, sub)
	}
	return true
}

func (w *folderWatch) close() {
	if w != nil {
		w.end()
	}
}

// watchable reports whether the kernel can tell all about the tree: every folder
// is on a file system that only it changes, and was read.
func (s *Searcher) watchable(found *Found) bool {
	n := len(s.index.folders)
	return s.searches > 1 && n >= s.watchFrom && n <= watchUpTo && found.Unseen == 0 &&
		!slices.ContainsFunc(s.index.folders, func(f searchFolder) bool { return !f.watchable })
}

// startWatch watches the tree that the last search found. It has to be searched
// once more after that: what changed before a folder was watched is not told.
func (s *Searcher) startWatch() {
	w := newFolderWatch(s.match)
	if w == nil {
		return
	}
	for i := range s.index.folders {
		if !w.add(s.search.Root, s.index.folders[i].path) {
			w.close()
			return
		}
	}
	s.watch = w
}

// stopWatch makes the next searches look for themselves.
func (s *Searcher) stopWatch() {
	s.watch.close()
	s.watch, s.watched = nil, false
}
