package notify

import "golang.org/x/sys/unix"

// translate replaces a call that only old architectures have by the one that does the same.
func (c *call) translate() {
	const here = 1<<64 + unix.AT_FDCWD
	a := c.args
	switch c.nr {
	case unix.SYS_OPEN:
		c.nr, c.args = unix.SYS_OPENAT, [6]uint64{here, a[0], a[1], a[2]}
	case unix.SYS_CREAT:
		c.nr, c.args = unix.SYS_OPENAT, [6]uint64{here, a[0], unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC, a[1]}
	case unix.SYS_MKDIR:
		c.nr, c.args = unix.SYS_MKDIRAT, [6]uint64{here, a[0], a[1]}
	case unix.SYS_MKNOD:
		c.nr, c.args = unix.SYS_MKNODAT, [6]uint64{here, a[0], a[1], a[2]}
	case unix.SYS_SYMLINK:
		c.nr, c.args = unix.SYS_SYMLINKAT, [6]uint64{a[0], here, a[1]}
	case unix.SYS_UNLINK:
		c.nr, c.args = unix.SYS_UNLINKAT, [6]uint64{here, a[0]}
	case unix.SYS_RMDIR:
		c.nr, c.args = unix.SYS_UNLINKAT, [6]uint64{here, a[0], unix.AT_REMOVEDIR}
	case unix.SYS_LINK:
		c.nr, c.args = unix.SYS_LINKAT, [6]uint64{here, a[0], here, a[1]}
	case unix.SYS_RENAME:
		c.nr, c.args = unix.SYS_RENAMEAT, [6]uint64{here, a[0], here, a[1]}
	}
}
