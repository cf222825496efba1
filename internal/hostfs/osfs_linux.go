package hostfs

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Lstat implements FS. A plan looks up hundreds of paths, most of which do not exist: package
// os would allocate an error for each.
func (OS) Lstat(p string) (Info, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(unix.AT_FDCWD, p, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch err {
		case nil:
			return linuxInfo(p, &st)
		case unix.EINTR:
			continue
		case unix.ENOENT:
			return Info{}, fs.ErrNotExist
		case unix.EACCES:
			return Info{}, fs.ErrPermission
		default:
			return Info{}, &fs.PathError{Op: "lstat", Path: p, Err: err}
		}
	}
}

// MayMake implements Writer. It checks modes, owners, and read-only file systems.
func (OS) MayMake(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

func linuxInfo(p string, st *unix.Stat_t) (Info, error) {
	info := Info{Kind: KindOf(st.Mode), Mode: fs.FileMode(st.Mode & 0o777), UID: int(st.Uid)}
	if info.Kind != Symlink {
		return info, nil
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	if err != nil {
		return Info{}, &fs.PathError{Op: "readlink", Path: p, Err: err}
	}
	info.Target = string(buf[:n])
	return info, nil
}

// KindOf returns the kind of file for the mode of a stat call.
func KindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFCHR, unix.S_IFBLK:
		return Device
	default:
		return Other
	}
}
