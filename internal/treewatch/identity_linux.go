package treewatch

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// An identity identifies the file at a path, or says why there is none.
type identity struct {
	// major and minor are the device.
	major, minor uint32
	ino          uint64
	// birth distinguishes a file from one that was removed, whose inode number it may have. Where the file system does not
	// keep it, it is the time of the last change, or nothing for a directory, which changes with every name in it.
	birth unix.StatxTimestamp
	mode  uint16 // the type of file
	errno unix.Errno
	// target is the text of a link. A link that replaces another one may have the same inode
	// number.
	target string
}

// wanted are the facts that an identity and a directory's modification time need.
const wanted = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_MTIME | unix.STATX_CTIME | unix.STATX_BTIME

func lstat(p string, st *unix.Statx_t) unix.Errno {
	for {
		err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, wanted, st)
		errno, _ := err.(unix.Errno)
		if errno != unix.EINTR {
			return errno
		}
	}
}

func identityOf(st *unix.Statx_t, errno unix.Errno) identity {
	if errno != 0 {
		return identity{errno: errno}
	}
	id := identity{major: st.Dev_major, minor: st.Dev_minor, ino: st.Ino, mode: st.Mode & unix.S_IFMT}
	switch {
	case st.Mask&unix.STATX_BTIME != 0:
		id.birth = st.Btime
	case id.mode != unix.S_IFDIR:
		id.birth = st.Ctime
	}
	return id
}

func identify(p string) identity {
	var st unix.Statx_t
	errno := lstat(p, &st)
	id := identityOf(&st, errno)
	if id.mode == unix.S_IFLNK {
		id.target, _ = os.Readlink(p) // if it is gone, that is another identity
	}
	return id
}

// examine returns a folder's identity and modification time.
func examine(p string) (identity, time.Time) {
	var st unix.Statx_t
	errno := lstat(p, &st)
	return identityOf(&st, errno), time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))
}

func (id identity) kind() hostfs.Kind {
	if id.errno != 0 {
		return hostfs.Missing
	}
	return hostfs.KindOf(uint32(id.mode))
}
