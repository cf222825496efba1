package search

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/treewatch"
)

// Two changes of a folder that are less than a grain apart may have the same change time:
// kernels before 6.13 count in ticks of up to 10 ms, and some file systems in whole seconds. A
// folder that changed so recently is read again.
const (
	stampGrain       = 20 * time.Millisecond
	coarseStampGrain = 2 * time.Second
)

// A folderList is the content of a folder, as far as it matters to a search.
type folderList struct {
	stamp stamp
	// settled and local have the same meaning as in folder.
	settled, local bool
	names, folders []string
}

// A folderReader lists folders one after the other.
type folderReader struct {
	// kinds says for each device whether its change times can be trusted.
	kinds map[uint64]bool
}

// errListTooLong means that the time was too short to read the whole folder.
var errListTooLong = errors.New("the folder is too long")

// beneath opens a path below a folder without following any link.
func beneath(root int, p string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat2(root, p, &how) })
	if err == unix.ENOSYS || err == unix.EPERM {
		// openat2 is missing: an old kernel, or a filter around this process. A link in the
		// path then leads to a folder with another stamp, which is noticed.
		return ignoringEINTR(func() (int, error) { return unix.Openat(root, p, flags, 0) })
	}
	return fd, err
}

// read lists a folder below the root.
func (r *folderReader) read(root int, p string, match *matcher, deadline time.Time) (*folderList, error) {
	fd, err := beneath(root, p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// Read the time before the stamp, and the stamp before the names: a later change then
	// has a later stamp, or is within the grain.
	now := time.Now()
	list := &folderList{}
	// Without a stamp, for example because a filter around this process refuses statx, the
	// folder is read each time.
	if stampOf(fd, emptyPath, unix.AT_EMPTY_PATH, &list.stamp) == nil {
		list.local = r.countsTimes(fd, list.stamp.dev)
		list.settled = list.local && list.stamp.settledAt(now)
	}
	return list, r.names(fd, list, match, deadline)
}

// closed checks a folder that may not be listed. A command that knows the name of a file in it
// may still be able to open the file, so each name without wildcards is looked up. A change of
// the folder's mode or names changes its stamp.
func (r *folderReader) closed(root int, p string, match *matcher) *folderList {
	list := &folderList{}
	now := time.Now()
	if stampOf(root, unsafe.StringData(p), unix.AT_SYMLINK_NOFOLLOW, &list.stamp) == nil {
		list.settled = r.kinds[list.stamp.dev] && list.stamp.settledAt(now)
	}
	for name := range match.names {
		if holdsText(kindOfEntry(root, entryPath(p, name))) {
			list.names = append(list.names, name)
		}
	}
	slices.Sort(list.names)
	return list
}

// listBuffer is how many bytes of names are read at once.
const listBuffer = 32 << 10

// listBuffers are reused, because each start reads at least one folder.
var listBuffers = sync.Pool{New: func() any { return new([listBuffer]byte) }}

// names reads the names of an open folder.
func (r *folderReader) names(fd int, list *folderList, match *matcher, deadline time.Time) error {
	buffer := listBuffers.Get().(*[listBuffer]byte)
	defer listBuffers.Put(buffer)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Getdents(fd, buffer[:]) })
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		// The names are not copied, because most of them do not match.
		for name, kind := range hostfs.Entries(unsafe.String(&buffer[0], n)) {
			list.entry(fd, kind, name, match)
		}
		if n > len(buffer)/2 && time.Now().After(deadline) {
			return errListTooLong
		}
	}
}

func (l *folderList) entry(fd int, kind byte, name string, match *matcher) {
	if kind == unix.DT_UNKNOWN {
		kind = kindOfEntry(fd, name)
	}
	switch {
	case kind == unix.DT_DIR:
		if !match.skip[name] {
			l.folders = append(l.folders, strings.Clone(name))
		}
	case holdsText(kind) && match.matches(name):
		l.names = append(l.names, strings.Clone(name))
	}
}

// holdsText reports whether an entry may be a file with secrets, or lead to one. A pipe may
// be one, because a password manager can serve a file through it.
func holdsText(kind byte) bool {
	return kind == unix.DT_REG || kind == unix.DT_LNK || kind == unix.DT_FIFO
}

// kindOfEntry looks up the type of an entry.
func kindOfEntry(fd int, name string) byte {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // DT_* are the bits of S_IF*
}

// countsTimes reports whether only this kernel changes the folders of a device. Only then can
// their change times be trusted.
func (r *folderReader) countsTimes(fd int, dev uint64) bool {
	counts, known := r.kinds[dev]
	if known {
		return counts
	}
	var st unix.Statfs_t
	counts = unix.Fstatfs(fd, &st) == nil && treewatch.IsLocal(&st)
	if r.kinds == nil {
		r.kinds = map[uint64]bool{}
	}
	r.kinds[dev] = counts
	return counts
}

// settledAt reports whether every change after now leads to another stamp.
func (s *stamp) settledAt(now time.Time) bool {
	grain := stampGrain
	if s.nsec == 0 {
		grain = coarseStampGrain
	}
	return now.Sub(time.Unix(s.sec, int64(s.nsec))) > grain
}

var emptyPath = unsafe.StringData("\x00")

// stampOf reads the stamp of a path that ends with a NUL. It is called for thousands of
// folders at each start. So it does not copy the path, and does not inform the Go scheduler
// of the system call.
func stampOf(dir int, p *byte, flags int, out *stamp) error {
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_CTIME
	var st unix.Statx_t
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(flags|unix.AT_NO_AUTOMOUNT), mask, uintptr(unsafe.Pointer(&st)), 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return errno
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return unix.ENOTDIR
		case st.Mask&mask != mask:
			return unix.EOPNOTSUPP
		}
		*out = stamp{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino, sec: st.Ctime.Sec, nsec: st.Ctime.Nsec}
		return nil
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
