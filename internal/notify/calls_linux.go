//go:build amd64 || arm64

package notify

import (
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
)

// handle answers one call.
func (c *call) handle() {
	if !c.b.begun {
		c.fail(unix.EACCES)
		return
	}
	if c.deniedByFilter() || c.onlyLooksUp() {
		return
	}
	if err := c.openRoot(); err != nil {
		c.failWith(err) // what cannot be judged does not happen
		return
	}
	if !c.findDomain() {
		c.fail(unix.EACCES)
		return
	}
	c.locked(func() {
		if !c.handleLegacy() {
			c.handleCommon()
		}
	})
}

// onlyLooksUp answers the calls that the kernel goes on with in any case: they
// need nothing of what the broker has to know to make a change.
func (c *call) onlyLooksUp() bool {
	a := c.args
	switch c.nr {
	case unix.SYS_OPENAT:
		if !c.kernelReads(a[2]) {
			return c.opensNull(a[1], a[2])
		}
		c.observe(plan.OpRead, int32(a[0]), a[1])
	case unix.SYS_EXECVE:
		c.observe(plan.OpExec, unix.AT_FDCWD, a[0])
	case unix.SYS_EXECVEAT:
		c.observe(plan.OpExec, int32(a[0]), a[1])
	default:
		return false
	}
	return true
}

// handleCommon answers the calls that every architecture has.
func (c *call) handleCommon() {
	a := c.args
	switch c.nr {
	case unix.SYS_OPENAT:
		c.openat(int32(a[0]), a[1], a[2], a[3])
	case unix.SYS_OPENAT2:
		c.openat2(int32(a[0]), a[1], a[2], a[3])
	case unix.SYS_MKDIRAT:
		c.mkdir(int32(a[0]), a[1], a[2])
	case unix.SYS_MKNODAT:
		c.mknod(int32(a[0]), a[1], a[2])
	case unix.SYS_SYMLINKAT:
		c.symlink(a[0], int32(a[1]), a[2])
	case unix.SYS_UNLINKAT:
		c.unlink(int32(a[0]), a[1], a[2])
	case unix.SYS_LINKAT:
		c.link(int32(a[0]), a[1], int32(a[2]), a[3], a[4])
	case unix.SYS_RENAMEAT:
		c.rename(int32(a[0]), a[1], int32(a[2]), a[3], 0)
	case unix.SYS_RENAMEAT2:
		c.rename(int32(a[0]), a[1], int32(a[2]), a[3], a[4])
	case unix.SYS_TRUNCATE:
		c.truncate(a[0], a[1])
	case unix.SYS_BIND:
		c.bind(int32(a[0]), a[1], a[2])
	case unix.SYS_CONNECT:
		c.connect(int32(a[0]), a[1], a[2])
	case unix.SYS_SOCKET:
		c.refuseDatagrams()
	case unix.SYS_SOCKETPAIR:
		c.packetPair()
	case unix.SYS_LANDLOCK_RESTRICT_SELF:
		c.restricted(int32(a[0]))
	case unix.SYS_UMASK:
		c.b.umaskChanged = true
		c.resume()
	default:
		// The filter asks about no other call. If it did, it could be one that it denies.
		c.fail(unix.EPERM)
	}
}
