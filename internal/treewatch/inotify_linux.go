package treewatch

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Inotify reports changes of the names in directories.
type Inotify struct {
	fd     int
	buffer []byte
	end    func()
}

// OpenInotify fails if the user has too many inotify instances.
func OpenInotify() (*Inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	n := &Inotify{fd: fd, buffer: make([]byte, 16<<10), end: sync.OnceFunc(func() { unix.Close(fd) })}
	runtime.AddCleanup(n, func(end func()) { end() }, n.end)
	return n, nil
}

// Add starts to report changes in a directory, and returns its number in events.
func (n *Inotify) Add(dir string, changes uint32) (int32, error) {
	id, err := unix.InotifyAddWatch(n.fd, dir, changes|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	return int32(id), err
}

// NameChanges are the events for a name that is created, removed or renamed in a directory.
const NameChanges = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO

// Read calls each for every event since the last call. It returns false if events cannot be
// read any more.
func (n *Inotify) Read(each func(id int32, mask uint32, name string)) bool {
	for {
		size, err := unix.Read(n.fd, n.buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return true
		case err != nil || size <= 0:
			return false
		}
		for b := n.buffer[:size]; len(b) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			end := unix.SizeofInotifyEvent + int(event.Len)
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
			each(event.Wd, event.Mask, string(name))
			b = b[end:]
		}
	}
}

// Close ends the reports.
func (n *Inotify) Close() { n.end() }

var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
}

// IsLocal reports whether only this kernel changes a file system. Then the kernel reports all
// changes and keeps the directories' times up to date.
func IsLocal(fs *unix.Statfs_t) bool { return slices.Contains(local, int64(fs.Type)) }

// A notifier collects the changes in the directories of a Watch.
type notifier struct {
	*Inotify
	folders map[int32]*folder
}

// newNotifier returns nil, which reports nothing, if the user has too many inotify instances.
func newNotifier() *notifier {
	n, err := OpenInotify()
	if err != nil {
		return nil
	}
	return &notifier{Inotify: n, folders: map[int32]*folder{}}
}

// add starts to watch the directory. It reports whether changes in it will be reported.
func (n *notifier) add(f *folder) bool {
	var fs unix.Statfs_t
	if n == nil || unix.Statfs(f.path, &fs) != nil || !IsLocal(&fs) {
		return false
	}
	id, err := n.Add(f.path, NameChanges|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF)
	if err != nil || n.folders[id] != nil {
		return false // it cannot be listed, or two names lead to it
	}
	n.folders[id] = f
	return true
}

// collect marks the directories in which one of the names may have changed.
func (n *notifier) collect() {
	if n != nil && !n.Read(n.note) {
		n.unsettle()
	}
}

// note handles one event. An event without a name is about the directory itself, or says that
// others were lost.
func (n *notifier) note(id int32, mask uint32, name string) {
	f := n.folders[id]
	switch {
	case f == nil:
		if mask&unix.IN_IGNORED == 0 {
			n.unsettle()
		}
	case name == "":
		// Changes in it may not be reported any more.
		f.told, f.settled = false, false
	default:
		if _, ours := f.names[name]; ours {
			f.settled = false
		}
	}
}

func (n *notifier) unsettle() {
	for _, f := range n.folders {
		f.settled = false
	}
}

func (n *notifier) close() {
	if n != nil {
		n.Close()
	}
}
