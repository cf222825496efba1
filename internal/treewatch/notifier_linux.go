package treewatch

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A notifier collects what the kernel tells about folders.
type notifier struct {
	fd      int
	folders map[int32]*folder
	buffer  []byte
	end     func()
}

// newNotifier returns nil, which tells nothing, where the user has too many.
func newNotifier() *notifier {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	n := &notifier{fd: fd, folders: map[int32]*folder{}, buffer: make([]byte, 16<<10)}
	n.end = sync.OnceFunc(func() { unix.Close(fd) })
	runtime.AddCleanup(n, func(end func()) { end() }, n.end)
	return n
}

// local are the file systems in which nobody but this kernel makes changes.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
}

// add asks the kernel about a folder, and reports whether it will tell.
func (n *notifier) add(f *folder) bool {
	var fs unix.Statfs_t
	if n == nil || unix.Statfs(f.path, &fs) != nil || !slices.Contains(local, int64(fs.Type)) {
		return false
	}
	const changes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	id, err := unix.InotifyAddWatch(n.fd, f.path, changes|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	if err != nil || n.folders[int32(id)] != nil {
		return false // it may not be listed, or two names lead to it
	}
	n.folders[int32(id)] = f
	return true
}

// collect marks the folders in which one of the names may have changed.
func (n *notifier) collect() {
	if n == nil {
		return
	}
	for {
		size, err := unix.Read(n.fd, n.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		case err != nil || size == 0:
			n.all()
			return
		default:
			n.parse(n.buffer[:size])
		}
	}
}

func (n *notifier) parse(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
		n.note(event, string(name))
		b = b[end:]
	}
}

// note takes one event. One that has no name is about the folder itself, or says
// that others were lost.
func (n *notifier) note(event *unix.InotifyEvent, name string) {
	f := n.folders[event.Wd]
	switch {
	case f == nil:
		if event.Mask&unix.IN_IGNORED == 0 {
			n.all()
		}
	case name == "":
		// It may be told about no more.
		f.told, f.settled = false, false
	default:
		if _, ours := f.names[name]; ours {
			f.settled = false
		}
	}
}

func (n *notifier) all() {
	for _, f := range n.folders {
		f.settled = false
	}
}

func (n *notifier) close() {
	if n != nil {
		n.end()
	}
}
