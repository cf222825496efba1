package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Still reports whether it is known, by one look at each folder or less, that a
// search would come to what an earlier one did. It is false where only a search
// tells: after a change, and where files were found, which git may track by now.
func (s *Searcher) Still(f *Found) bool {
	if !s.mu.TryLock() {
		return false // a search is under way
	}
	defer s.mu.Unlock()
	x := s.index
	if x == nil || x.later > 0 || x.unread > 0 || f.Root != s.search.Root || len(f.Files) > 0 || f.Unseen > 0 {
		return false
	}
	return s.unchanged() && x.found(s.search.Root).Same(f)
}

// unchanged reports whether the folders of the index are known to be what they were.
func (s *Searcher) unchanged() bool {
	folders := s.index.folders
	switch {
	case s.watch != nil:
		return s.watched && s.watch.silent() && s.sameRoot(unix.AT_FDCWD, unsafe.StringData(s.search.Root), 0)
	case len(folders) >= s.watchFrom: // another search, and they will be watched
		return false
	case len(folders) == 1:
		var now folderStamp
		return folders[0].settled && stampOf(unix.AT_FDCWD, unsafe.StringData(s.search.Root), 0, &now) == nil && now == folders[0].stamp
	}
	root, err := unix.Open(s.search.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(root)
	for i := range folders {
		var now folderStamp
		f := &folders[i]
		if !f.settled || stampOf(root, unsafe.StringData(f.path), unix.AT_SYMLINK_NOFOLLOW, &now) != nil || now != f.stamp {
			return false
		}
	}
	return true
}

// silent reports whether the kernel has nothing to tell.
func (w *folderWatch) silent() bool {
	n, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
	return err == nil && n == 0
}
