package review

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A tree is a folder below which names are looked up: never outside, and through no link.
type tree struct{ fd int }

func openTree(p string) (tree, error) {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return tree{-1}, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return tree{fd}, nil
}

// openReal opens a path in which no component is a link.
func openReal(p string, flags uint64) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return fd, nil
}

func (t tree) close() {
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
}

// parent opens the folder of a path and returns the last component.
func (t tree) parent(rel string) (int, string, error) {
	dir, name := path.Split(rel)
	if name == "" || name == "." || name == ".." {
		return -1, "", unix.EINVAL
	}
	fd, err := t.folder(strings.TrimSuffix(dir, "/"))
	return fd, name, err
}

// folder opens a folder to look names up in it.
func (t tree) folder(rel string) (int, error) {
	if rel == "" {
		rel = "."
	}
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	// EAGAIN: something was renamed meanwhile, and the kernel could not be sure.
	for range 1000 {
		fd, err := unix.Openat2(t.fd, rel, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

func (t tree) stat(rel string) (unix.Stat_t, error) {
	var st unix.Stat_t
	d, name, err := t.parent(rel)
	if err != nil {
		return st, err
	}
	defer unix.Close(d)
	return st, fstatat(d, name, &st)
}

func fstatat(dir int, name string, st *unix.Stat_t) error {
	return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// isGone reports whether an error means that there is no such file, also because
// something above it is no folder any more.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// openFile opens a regular file to read it, and never waits for a pipe. A file of the
// store is opened whatever its mode says: it is the user's.
func openFile(dir int, name string, own bool) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0)
	if err == unix.EACCES && own {
		fd, err = openAnyway(dir, name, flags)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openAnyway gives the user the right to read for a moment.
func openAnyway(dir int, name string, flags int) (int, error) {
	p, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return -1, err
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFDIR {
		return -1, unix.EACCES
	}
	proc := procName(p)
	if err := unix.Chmod(proc, st.Mode&0o7777|0o700); err != nil {
		return -1, err
	}
	fd, err := unix.Open(proc, flags&^unix.O_NOFOLLOW, 0)
	if e := unix.Chmod(proc, st.Mode&0o7777); err == nil && e != nil {
		unix.Close(fd)
		return -1, e
	}
	return fd, err
}

func procName(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func openDir(dir int, name string, own bool) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0)
	if err == unix.EACCES && own {
		fd, err = openAnyway(dir, name, flags)
	}
	return fd, err
}

// readNames lists an open folder in order. The descriptor stays the caller's.
func readNames(fd int) ([]string, error) {
	dup, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, err
		}
	}
	f := os.NewFile(uintptr(dup), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func readLink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// isOpaque reports whether an entry is a folder of which the command sees nothing of the host's.
func isOpaque(dir int, name string) bool {
	return strings.HasPrefix(xattr(dir, name, opaqueAttr), "y")
}

// xattr returns an attribute of a file of the store, or "".
func xattr(dir int, name, attr string) string {
	buf := make([]byte, 64)
	n, err := unix.Lgetxattr(procName(dir)+"/"+name, attr, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

func hasXattr(dir int, name, attr string) bool {
	_, err := unix.Lgetxattr(procName(dir)+"/"+name, attr, nil)
	return err == nil
}

// The attributes of overlayfs with the option userxattr.
const (
	overlayPrefix = "user.overlay."
	opaqueAttr    = overlayPrefix + "opaque"
	originAttr    = overlayPrefix + "origin"
	escapedPrefix = overlayPrefix + "overlay."
)

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Folder
	case unix.S_IFLNK:
		return Link
	case unix.S_IFIFO:
		return Pipe
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// perm are the permissions that a review carries: no set-id bits.
func perm(mode uint32) uint32 {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return mode & 0o777
	case unix.S_IFDIR:
		return mode & 0o1777
	}
	return 0
}

// sameContent compares two files of the same size. It skips holes that both have: a
// command can make a file of any size that takes no space.
func sameContent(a, b *os.File, size int64) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		if skip := min(nextData(a, at, size), nextData(b, at, size)); skip > at {
			at = skip
			continue
		}
		n := int(min(int64(len(x)), size-at))
		if _, err := a.ReadAt(x[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if _, err := b.ReadAt(y[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
		at += int64(n)
	}
	return true, nil
}

// nextData is where the next byte of a file is that is in no hole.
func nextData(f *os.File, at, size int64) int64 {
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return size
	case err != nil: // the file system knows no holes
		return at
	}
	return next
}
