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
	w, err := c.path(unix.AT_FDCWD, address)
	if err != nil {
		if text, _ := c.text(address); errors.Is(err, errRemoved) && unnamed(text) {
			err = unix.EISDIR
		}
		c.failWith(err)
		return
	}
	fd, at, err := c.truncated(w)
	if err != nil {
		if !c.asksUnseen(plan.OpWrite, w.whole) {
			c.suspect(plan.OpWrite, w.whole)
			c.failWith(err)
		}
		return
	}
	defer unix.Close(fd)
	defer at.close()
	if c.allows(plan.OpWrite, at.path()) && c.git(plan.OpWrite, at, nil) && !c.tooLong(size) {
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

// truncated opens the file that is to be truncated, with its place.
func (c *call) truncated(w way) (fd int, at *place, err error) {
	fd, real, found, err := c.b.given(w.whole)
	switch {
	case err != nil:
		return -1, nil, err
	case found:
		at, err = c.b.locate(real)
	default:
		if fd, err = c.hold(w, unix.O_PATH); err != nil {
			return -1, nil, err
		}
		at, err = c.placeOf(fd, w, unix.O_PATH)
	}
	if err != nil {
		unix.Close(fd)
	}
	if errors.Is(err, errUnnamed) { // it is the root
		err = unix.EISDIR
	}
	return fd, at, err
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
	source, w, err := c.linkSource(oldfd, old, flags)
	if err != nil {
		c.unplaced(plan.OpLink, oldfd, old, err)
		return
	}
	defer unix.Close(source)
	from, err := c.linkPlace(source, w, openFlags(flags))
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
func (c *call) linkPlace(source int, w way, flags uint64) (*place, error) {
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil || st.Nlink == 0 {
		return nil, err
	}
	at, err := c.placeOf(source, w, flags)
	if err == nil && c.b.guards(at.path()) && !c.permits(plan.OpLink, at.path()) {
		at.close()
		return nil, unix.EACCES
	}
	return at, err
}

// linkSource opens the file that is to get another name, and says by which way.
func (c *call) linkSource(dirfd int32, address, flags uint64) (int, way, error) {
	text, err := c.text(address)
	if err == nil && text == "" && flags&unix.AT_EMPTY_PATH == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return -1, way{}, err
	}
	own, ok := ownDescriptor(text)
	switch {
	case text == "":
		source, err := c.openDescriptor(dirfd)
		return source, way{}, err
	case ok && flags&unix.AT_SYMLINK_FOLLOW != 0:
		source, err := c.openDescriptor(own)
		return source, way{}, err
	}
	find := c.wayOf
	if namesOwn(text) {
		find = c.whole
	}
	w, err := find(dirfd, text)
	if err != nil {
		return -1, w, err
	}
	source, err := c.hold(w, openFlags(flags))
	return source, w, err
}

// openFlags are those with which linkat opens a file.
func openFlags(flags uint64) uint64 {
	if flags&unix.AT_SYMLINK_FOLLOW != 0 {
		return unix.O_PATH
	}
	return unix.O_PATH | unix.O_NOFOLLOW
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
