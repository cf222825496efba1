//go:build amd64 || arm64

package notify

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
)

// makes is what mkdir, mknod, symlink and link have in common: a new name, for
// what from names. If it is for a symbolic link, text is that link's.
func (c *call) makes(op plan.Op, dirfd int32, address uint64, from *place, text string, make func(at *place) error) {
	at, err := c.place(dirfd, address)
	if err != nil {
		c.unplaced(op, dirfd, address, err)
		return
	}
	defer at.close()
	k, err := at.kind()
	if err != nil {
		c.unplaced(op, dirfd, address, err)
		return
	}
	if k != missing {
		c.failAt(at, unix.EEXIST)
		return
	}
	path := at.path()
	if !c.b.guards(path) {
		c.outside(op, path)
		return
	}
	if c.allows(op, path) && !(text != "" && c.leads(op, path, text)) && c.git(op, at, from) {
		c.finish(c.as(func() error { return make(at) }))
	}
}

func (c *call) mkdir(dirfd int32, address, mode uint64) {
	perm := c.masked(mode)
	c.makes(plan.OpMkdir, dirfd, address, nil, "", func(at *place) error {
		return unix.Mkdirat(at.dir, at.last(), perm)
	})
}

func (c *call) mknod(dirfd int32, address, mode uint64) {
	perm := c.masked(mode)
	c.node = true
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR: // devices not even root may make inside
		c.fail(unix.EPERM)
		return
	default:
		c.fail(unix.EINVAL)
		return
	}
	c.makes(plan.OpCreate, dirfd, address, nil, "", func(at *place) error {
		return unix.Mknodat(at.dir, at.last(), uint32(mode)&unix.S_IFMT|perm, 0)
	})
}

func (c *call) symlink(text uint64, dirfd int32, address uint64) {
	target, err := c.text(text)
	if err == nil && target == "" {
		err = unix.ENOENT
	}
	if err != nil {
		c.failWith(err)
		return
	}
	c.makes(plan.OpSymlink, dirfd, address, nil, target, func(at *place) error {
		return unix.Symlinkat(target, at.dir, at.last())
	})
}

// unlink is unlink and rmdir.
func (c *call) unlink(dirfd int32, address, flags uint64) {
	if uint32(flags)&^unix.AT_REMOVEDIR != 0 {
		c.fail(unix.EINVAL)
		return
	}
	at, err := c.place(dirfd, address)
	if err != nil {
		c.unplaced(plan.OpUnlink, dirfd, address, err)
		return
	}
	defer at.close()
	k, err := at.kind()
	switch {
	case err != nil:
	case k == missing:
		err = unix.ENOENT
	case at.slash && k != unix.S_IFDIR && uint32(flags) == 0: // rmdir looks at the rights first
		err = unix.ENOTDIR
	}
	if err != nil {
		c.unplaced(plan.OpUnlink, dirfd, address, err)
		return
	}
	path := at.path()
	if !c.b.guards(path) {
		c.outside(plan.OpUnlink, path)
		return
	}
	if c.allows(plan.OpUnlink, path) && !c.stays(plan.OpUnlink, path) && c.git(plan.OpUnlink, at, nil) {
		c.finish(c.as(func() error { return unix.Unlinkat(at.dir, at.last(), int(flags)) }))
	}
}

// truncate never goes on in the kernel: the Landlock domain does not refuse it.
func (c *call) truncate(address, size uint64) {
	if int64(size) < 0 {
		c.fail(unix.EINVAL)
		return
	}
	path, err := c.path(unix.AT_FDCWD, address)
	if err != nil {
		if text, _ := c.text(address); errors.Is(err, errRemoved) && unnamed(text) {
			err = unix.EISDIR
		}
		c.failWith(err)
		return
	}
	fd, real, err := c.truncated(path)
	if err != nil {
		if !c.asksUnseen(plan.OpWrite, path) {
			c.suspect(plan.OpWrite, path)
			c.failWith(err)
		}
		return
	}
	defer unix.Close(fd)
	if c.mayTruncate(real) && !c.tooLong(size) {
		c.finish(c.as(func() error { return truncateOpen(fd, size) }))
	}
}

// tooLong answers a length that is over the limit of the process: the broker's
// own is another.
func (c *call) tooLong(size uint64) bool {
	var limit unix.Rlimit
	err := unix.Prlimit(c.pid, unix.RLIMIT_FSIZE, nil, &limit)
	if err != nil {
		c.failWith(err)
		return true
	}
	if size > limit.Cur {
		c.fail(unix.EFBIG)
		return true
	}
	return false
}

// truncated opens the file that is to be truncated, with its path.
func (c *call) truncated(path string) (fd int, real string, err error) {
	if fd, real, found, err := c.b.given(path); found {
		return fd, real, err
	}
	if fd, err = c.b.inside(path, unix.O_PATH); err != nil {
		return -1, "", err
	}
	if real, err = realPath(fd); err != nil {
		unix.Close(fd)
	}
	return fd, real, err
}

// mayTruncate judges, and answers where it may not be.
func (c *call) mayTruncate(path string) bool {
	if !c.allows(plan.OpWrite, path) {
		return false
	}
	at, err := c.b.locate(path)
	if err != nil {
		c.failWith(err)
		return false
	}
	defer at.close()
	return c.git(plan.OpWrite, at, nil)
}

func truncateOpen(fd int, size uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EINVAL
	}
	w, err := unix.Open(selfFD(fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(w)
	return unix.Ftruncate(w, int64(size))
}

// link gives a file a second name.
func (c *call) link(oldfd int32, old uint64, newfd int32, address, flags uint64) {
	if uint32(flags)&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		c.fail(unix.EINVAL)
		return
	}
	source, err := c.linkSource(oldfd, old, flags)
	if err != nil {
		c.unplaced(plan.OpLink, oldfd, old, err)
		return
	}
	defer unix.Close(source)
	from, err := c.linkPlace(source)
	if err != nil {
		if at, err := c.place(newfd, address); err == nil {
			if path, err := realPath(source); err == nil {
				c.alsoRefused(plan.OpLink, path, at.path())
			}
			at.close()
		}
		c.failWith(err)
		return
	}
	if from != nil {
		defer from.close()
	}
	text, err := linkText(source, "")
	if err != nil && err != unix.ENOENT { // which it is for what is no symbolic link
		c.failWith(err)
		return
	}
	c.makes(plan.OpLink, newfd, address, from, text, func(at *place) error {
		if from != nil && (from.host || at.host) {
			return c.b.linkGiven(source, from, at)
		}
		return unix.Linkat(unix.AT_FDCWD, selfFD(source), at.dir, at.last(), unix.AT_SYMLINK_FOLLOW)
	})
}

// linkPlace is the name that a file has before it gets another, or nil if it has
// none. That name is judged: under the new one, rules about it would not be
// found.
func (c *call) linkPlace(source int) (*place, error) {
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil || st.Nlink == 0 {
		return nil, err
	}
	path, err := realPath(source)
	if err != nil {
		return nil, err
	}
	if c.b.guards(path) && !c.permits(plan.OpLink, path) {
		return nil, unix.EACCES
	}
	return c.b.locate(path)
}

// linkSource opens the file that is to get another name.
func (c *call) linkSource(dirfd int32, address, flags uint64) (int, error) {
	text, err := c.text(address)
	switch {
	case err != nil:
		return -1, err
	case text == "" && flags&unix.AT_EMPTY_PATH == 0:
		return -1, unix.ENOENT
	case text == "":
		return c.openDescriptor(dirfd)
	}
	if fd, ok := ownDescriptor(text); ok && flags&unix.AT_SYMLINK_FOLLOW != 0 {
		return c.openDescriptor(fd)
	}
	path, err := "", error(nil)
	if namesOwn(text) {
		path, err = c.whole(dirfd, text)
	} else {
		path, err = c.absolute(dirfd, text)
	}
	if err != nil {
		return -1, err
	}
	open := uint64(unix.O_PATH)
	if flags&unix.AT_SYMLINK_FOLLOW == 0 {
		open |= unix.O_NOFOLLOW
	}
	return c.b.inside(path, open)
}

// openDescriptor takes hold of what a descriptor of the process means.
func (c *call) openDescriptor(fd int32) (int, error) {
	link := c.proc("cwd")
	if fd != unix.AT_FDCWD {
		link = c.descriptorLink(fd)
	}
	opened, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		err = unix.EBADF
	}
	return opened, err
}

// namesOwn reports whether a path is itself a link of /proc to a descriptor or a
// directory of the process, and not something below one.
func namesOwn(path string) bool {
	path = strings.TrimRight(path, "/")
	if _, ok := ownDescriptor(path); ok {
		return true
	}
	switch path {
	case "/proc/self/cwd", "/proc/self/root", "/proc/thread-self/cwd", "/proc/thread-self/root":
		return true
	}
	return false
}

// ownDescriptor is the number in a name under which a process reaches one of its
// own descriptors.
func ownDescriptor(path string) (int32, bool) {
	switch path {
	case "/dev/stdin":
		return 0, true
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, prefix := range []string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			n, err := strconv.ParseInt(rest, 10, 32)
			return int32(n), err == nil
		}
	}
	return 0, false
}
