package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// errNoSupport means that the machine lacks openat2 or /proc, which the fast way needs.
var errNoSupport = errors.New("openat2 or /proc is missing")

// openSystem opens by descriptors, or component by component if that is not supported.
func openSystem(path string, r request) (*os.File, error) {
	f, err := openByFD(path, r)
	if errors.Is(err, errNoSupport) {
		return openPortable(path, r)
	}
	return f, err
}

// openByFD opens the path, following a link in its last component each time.
func openByFD(path string, r request) (*os.File, error) {
	hops := 0
	for range maxRounds {
		next, f, err := tryOpen(path, r)
		switch {
		case errors.Is(err, errChanged):
			continue
		case err != nil || next == "":
			return f, err
		}
		path = next
		if hops++; hops > maxHops {
			return nil, unix.ELOOP
		}
	}
	return nil, errChanged
}

// tryOpen opens the path, or returns the target of its last component if that is a link.
func tryOpen(path string, r request) (next string, f *os.File, err error) {
	parent, base := splitLast(path)
	dir, real, err := openFolder(parent)
	if err != nil {
		return "", nil, err
	}
	defer unix.Close(dir)
	if base == "." {
		f, err := openDir(dir, real, r)
		return "", f, err
	}
	fd, mode, err := lookUp(dir, base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	at := found{exists: err == nil, mode: mode}
	if at.exists {
		defer unix.Close(fd)
	}
	resolved := filepath.Join(real, base)
	action, err := r.judge(resolved, at)
	switch {
	case err != nil:
		return "", nil, err
	case action == followLink:
		next, err = linkTarget(fd, real)
	case action == createNew:
		f, err = create(dir, base, resolved, r)
	default:
		f, err = reopen(fd, resolved, r.existingFlags())
	}
	return next, f, err
}

// splitLast splits a path before its last component. If the path must be a folder (trailing
// slash, "." or ".."), parent is the whole path and base is ".".
func splitLast(path string) (parent, base string) {
	parent, base = filepath.Split(path)
	if base == "" || base == "." || base == ".." {
		return path, "."
	}
	return parent, base
}

// openFolder opens a folder and reads its path from the descriptor. Magic links in /proc,
// which lead to objects rather than paths, are errors: they may lead into another mount
// namespace, where the same path means something else.
func openFolder(path string) (fd int, real string, err error) {
	fd, err = openat2(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", err
	}
	if real, err = pathOf(fd); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, real, nil
}

// openat2 opens with RESOLVE_NO_MAGICLINKS. A seccomp filter that does not know the call
// returns EPERM, a kernel before 5.6 ENOSYS.
func openat2(dir int, path string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(dir, path, &how)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err == unix.ENOSYS || err == unix.EPERM:
			return -1, errNoSupport
		}
		return fd, err
	}
}

// pathOf returns the path of an open folder. For a folder that was removed or is outside of
// the root, the kernel's text is not a path; then, or if the folder is moved at this moment,
// the look-up starts again.
func pathOf(fd int) (string, error) {
	real, err := os.Readlink(procName(fd))
	if err != nil {
		return "", errNoSupport
	}
	var held, named unix.Stat_t
	if err := unix.Fstat(fd, &held); err != nil {
		return "", err
	}
	if err := unix.Lstat(real, &named); err != nil || held.Dev != named.Dev || held.Ino != named.Ino {
		return "", errChanged
	}
	return real, nil
}

func procName(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// lookUp finds what is at a name without opening or following it.
func lookUp(dir int, base string) (fd int, mode fs.FileMode, err error) {
	fd, err = openat2(dir, base, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, typeOf(st.Mode), nil
}

// typeOf translates the type bits; an unknown type counts as irregular.
func typeOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

// linkTarget reads the link that was looked up, by its descriptor.
func linkTarget(fd int, folder string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	target := string(buf[:n])
	if filepath.IsAbs(target) {
		return target, nil
	}
	return folder + "/" + target, nil
}

// create creates the file. O_EXCL follows no link and opens no existing file.
func create(dir int, base, resolved string, r request) (*os.File, error) {
	flags := r.createFlags() | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat(dir, base, flags, uint32(r.perm)) })
	if err == unix.EEXIST && !r.exclusive() {
		return nil, errChanged
	}
	return newFile(fd, resolved, err)
}

// reopen opens the file behind an O_PATH descriptor. Its type was checked, so it does not
// block on a FIFO, and O_TRUNC affects no other file.
func reopen(fd int, resolved string, flags int) (*os.File, error) {
	file, err := ignoringEINTR(func() (int, error) { return unix.Open(procName(fd), flags|unix.O_CLOEXEC, 0) })
	return newFile(file, resolved, err)
}

// openDir opens the folder that the path led to by "/", "." or "..".
func openDir(dir int, real string, r request) (*os.File, error) {
	if _, err := r.judge(real, found{exists: true, mode: fs.ModeDir}); err != nil {
		return nil, err
	}
	return reopen(dir, real, r.existingFlags())
}

func newFile(fd int, name string, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
