package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// openSource opens a path of the host as planned. The naive way is to check the path and pass
// its name on: a process that can write to one of its parents could put a symbolic link there
// in between. Here, the file that was checked is the one that gets mounted.
func openSource(f *backend.File) (*os.File, error) {
	fd, err := openNoLinks(f.Path)
	if err != nil {
		return nil, sourceError(f, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, sourceError(f, err)
	}
	if kind := hostfs.KindOf(st.Mode); kind != f.Want {
		unix.Close(fd)
		return nil, sourceError(f, fmt.Errorf("it is now a %v and was a %v", kind, f.Want))
	}
	return os.NewFile(uintptr(fd), f.Path), nil
}

func sourceError(f *backend.File, err error) error {
	return &ChangedError{Path: f.Path, Want: f.Want, Err: err, Origin: f.Origin}
}

var errLink = errors.New("a symbolic link is in the way")

// openNoLinks opens a clean absolute path with O_PATH and follows no symbolic link in any
// component. If the last component is a link, the link itself is opened.
func openNoLinks(path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	switch err {
	case unix.ELOOP:
		return -1, errLink
	case unix.ENOSYS, unix.EPERM:
		// Linux before 5.6, or a container's filter that does not know openat2.
		return walkNoLinks(path)
	}
	return fd, err
}

// walkNoLinks does the same as openNoLinks, one component at a time.
func walkNoLinks(path string) (int, error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Open("/", flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range parts {
		next, err := unix.Openat(fd, name, flags, 0)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
		if i < len(parts)-1 && isLink(fd) {
			unix.Close(fd)
			return -1, errLink
		}
	}
	return fd, nil
}

func isLink(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && hostfs.KindOf(st.Mode) == hostfs.Symlink
}

// openData makes a sealed memory file with that content: nobody can change it.
func openData(content []byte) (*os.File, error) {
	fd, err := memoryFile("cloche", content, unix.MFD_NOEXEC_SEAL)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "data"), nil
}

// memoryFile makes a sealed memory file. The flag says whether it can be executed; Linux
// before 6.3 does not know such flags.
func memoryFile(name string, content []byte, flag int) (fd int, err error) {
	const sealable = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, sealable|flag)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, sealable)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	for at, n := 0, 0; err == nil && at < len(content); at += max(n, 0) {
		n, err = unix.Pwrite(fd, content[at:], int64(at)) // pwrite leaves the file offset at 0
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("fill a file in memory: %w", err)
	}
	return fd, nil
}

// mustExist fails if a path that the launch mounts something on is gone.
func mustExist(l *backend.Launch) error {
	for _, path := range l.MustExist {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return &ChangedError{Path: path, Err: fs.ErrNotExist}
		}
	}
	return nil
}

// pipeFromChild makes a pipe that the child writes to. The supervisor's end is non-blocking,
// so that reads can have a deadline. The child's end is blocking, because a program does not
// expect EAGAIN from its standard output.
func pipeFromChild() (ours, childs *os.File, err error) {
	fd, childs, err := rawPipeFromChild()
	if err != nil {
		return nil, nil, err
	}
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pipe"), childs, nil
}

// rawPipeFromChild is pipeFromChild with a blocking descriptor.
func rawPipeFromChild() (ours int, childs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	return p[0], os.NewFile(uintptr(p[1]), "pipe"), nil
}

// pipeToChild makes a pipe that the child reads from.
func pipeToChild() (childs, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	_ = unix.SetNonblock(p[1], true)
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// openNull opens the null device. Package os would try to poll it, which takes five more
// system calls.
func openNull(flag int) (*os.File, error) {
	fd, err := unix.Open(os.DevNull, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil
}
