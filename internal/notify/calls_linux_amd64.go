package notify

import "golang.org/x/sys/unix"

// handleLegacy answers the calls that only old architectures have. It is false
// for any other.
func (c *call) handleLegacy() bool {
	const here = unix.AT_FDCWD
	a := c.args
	switch c.nr {
	case unix.SYS_OPEN:
		c.openat(here, a[0], a[1], a[2])
	case unix.SYS_CREAT:
		c.openat(here, a[0], unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, a[1])
	case unix.SYS_MKDIR:
		c.mkdir(here, a[0], a[1])
	case unix.SYS_MKNOD:
		c.mknod(here, a[0], a[1])
	case unix.SYS_SYMLINK:
		c.symlink(a[0], here, a[1])
	case unix.SYS_UNLINK:
		c.unlink(here, a[0], 0)
	case unix.SYS_RMDIR:
		c.unlink(here, a[0], unix.AT_REMOVEDIR)
	case unix.SYS_LINK:
		c.link(here, a[0], here, a[1], 0)
	case unix.SYS_RENAME:
		c.rename(here, a[0], here, a[1], 0)
	default:
		return false
	}
	return true
}
