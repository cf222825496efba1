package treewatch

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// An identity identifies the file at a path, or says why there is none.
type identity struct {
	dev, ino uint64
	mode     uint32 // the type of file
	errno    unix.Errno
	// target is the text of a link. A link that replaces another one may have the same inode
	// number.
	target string
}

func lstat(p string, st *unix.Stat_t) unix.Errno {
	for {
		err := unix.Fstatat(unix.AT_FDCWD, p, st, unix.AT_SYMLINK_NOFOLLOW)
		errno, _ := err.(unix.Errno)
		if errno != unix.EINTR {
			return errno
		}
	}
}

func identityOf(st *unix.Stat_t, errno unix.Errno) identity {
	if errno != 0 {
		return identity{errno: errno}
	}
	return identity{dev: st.Dev, ino: st.Ino, mode: st.Mode & unix.S_IFMT}
}

func identify(p string) identity {
	var st unix.Stat_t
	errno := lstat(p, &st)
	id := identityOf(&st, errno)
	if id.mode == unix.S_IFLNK {
		id.target, _ = os.Readlink(p) // if it is gone, that is another identity
	}
	return id
}

// examine returns a folder's identity and modification time.
func examine(p string) (identity, time.Time) {
	var st unix.Stat_t
	errno := lstat(p, &st)
	return identityOf(&st, errno), time.Unix(st.Mtim.Unix())
}

func (id identity) kind() hostfs.Kind {
	if id.errno != 0 {
		return hostfs.Missing
	}
	return hostfs.KindOf(id.mode)
}
