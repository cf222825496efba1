//go:build amd64 || arm64

package notify

import (
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
)

// bind answers bind(2). Only a unix socket with a path makes a file. In a
// guarded directory the broker binds the process's own socket, which it takes a
// descriptor of, to the name that it has read and judged. All other binds go on
// in the kernel. An address or a descriptor that another thread changes
// meanwhile gains nothing: in guarded directories Landlock refuses the process
// to make sockets.
func (c *call) bind(fd int32, address, length uint64) {
	raw, err := c.address(address, length)
	if err != nil {
		c.resume()
		return
	}
	name, ok := pathOf(raw)
	if !ok {
		c.resume()
		return
	}
	w, err := c.wayOf(unix.AT_FDCWD, name)
	if err != nil {
		c.resume()
		return
	}
	at, err := c.locate(w)
	if err != nil {
		c.bindsNowhere(w.whole, err)
		return
	}
	defer at.close()
	if path := at.path(); !c.b.guards(path) {
		c.outside(plan.OpCreate, path)
		return
	}
	socket, err := c.descriptor(fd)
	if err != nil {
		c.failWith(err)
		return
	}
	defer unix.Close(socket)
	if domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		c.resume() // the kernel refuses such an address for it
		return
	}
	c.bindAt(socket, at, raw, name)
}

// bindsNowhere answers a bind to a name in a directory that cannot be found.
func (c *call) bindsNowhere(whole string, err error) {
	if c.asksUnseen(plan.OpCreate, whole) {
		return
	}
	c.suspect(plan.OpCreate, whole)
	switch err {
	case unix.ENOENT, unix.ENOTDIR:
		c.failWith(err)
	default:
		c.resume()
	}
}

// bindAt judges a name in a guarded directory, and binds the socket to it.
func (c *call) bindAt(socket int, at *place, raw []byte, name string) {
	k, err := at.kind()
	switch {
	case err != nil:
		c.failWith(err)
		return
	case k != missing:
		c.fail(unix.EADDRINUSE)
		return
	case at.slash:
		c.fail(unix.ENOENT)
		return
	}
	c.node = true
	if !c.allows(plan.OpCreate, at.path()) || !c.git(plan.OpCreate, at, nil) {
		return
	}
	mask := c.umask()
	c.finish(c.as(func() error {
		unix.Umask(int(mask)) // of this thread alone, as its working directory
		defer unix.Umask(0)
		defer unix.Chdir("/") //nolint:errcheck // nothing depends on it; this lets go of the sandbox's mount
		return c.bindSocket(socket, at, raw, name)
	}))
}

// bindSocket binds a socket to a name in the directory of the place. The kernel
// keeps the text of the address for getsockname. So the name is used as it was
// given where it leads the broker to that very directory, by its own root or the
// working directory of the process. Elsewhere, as where the workspace has
// another path inside, the socket is bound to the last part of the name, which
// getsockname then returns.
func (c *call) bindSocket(socket int, at *place, raw []byte, name string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at.dir, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY != 0 { // the mount inside, which the name may pass by
		return unix.EROFS
	}
	if !c.leadsBrokerTo(at, name) {
		if err := unix.Fchdir(at.dir); err != nil {
			return err
		}
		raw = append(append(raw[:sunPath:sunPath], at.name...), 0)
	}
	if err := bind(socket, raw); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.EACCES // somebody outside moved a directory on the way
	}
	return nil
}

// leadsBrokerTo reports whether a name leads this thread to the directory of the
// place, after the thread has changed to the working directory of the process if
// the name is relative.
func (c *call) leadsBrokerTo(at *place, name string) bool {
	if !strings.HasPrefix(name, "/") && c.enterWorkingDirectory() != nil {
		return false
	}
	dir, last := splitLast(name)
	if last != at.name {
		return false
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return sameFile(fd, at.dir)
}

// enterWorkingDirectory changes to the working directory of the process.
func (c *call) enterWorkingDirectory() error {
	fd, err := unix.Open(c.proc("cwd"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !c.valid() { // the number may mean another process by now
		return unix.ESRCH
	}
	return unix.Fchdir(fd)
}

// bind is bind(2) with an address as the process wrote it.
func bind(socket int, raw []byte) error {
	_, _, e := unix.Syscall(unix.SYS_BIND, uintptr(socket), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
	runtime.KeepAlive(raw)
	if e != 0 {
		return e
	}
	return nil
}
