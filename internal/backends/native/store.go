package native

import (
	"strconv"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
)

// The store is one file system in memory for everything that is not the host's: private
// folders, empty files and folders that hide others, files with their own text. Each line
// shows a folder or file of it, by its own mount. One file system for each would cost more
// than all the rest, and this way the memory limit applies to all of them together.

// The names in the store that several lines show.
const (
	storedMask  = "mask"  // a folder that nobody can enter or list
	storedEmpty = "empty" // a folder with nothing in it
	storedVoid  = "void"  // a file that nobody can open
)

// makeStore makes the store and what all lines share. It is mounted where /dev will be mounted
// over it: before Linux 6.15, only a mounted file system can be cloned.
func (c *compiler) makeStore() {
	b := c.do("make the store of private files")
	at := c.deviceLine()
	c.makePoint(b, at)
	c.store = b.NewMount("tmpfs", ofHost, c.sized("mode=0755")...)
	c.attach(b, c.store, at.Path)
	c.shown = b.OpenTree(c.store, "", cloneOne)
	b.MountSetattr(c.shown, "", sysprog.AtEmptyPath, sysprog.MountAttr{Set: sysprog.MountAttrReadOnly | sysprog.MountAttrNoExec})
	c.attach(b, c.shown, at.Path)
	b.Mkdirat(c.store, storedMask, 0)
	b.Mkdirat(c.store, storedEmpty, 0o755)
	if c.masksFiles() {
		b.Mknodat(c.store, storedVoid, 0o100000, 0)
		b.Attach(c.void, c.store, storedVoid)
		b.Close(c.void)
	}
}

// masksFiles reports whether a line hides a file.
func (c *compiler) masksFiles() bool {
	for i := range c.plan.Paths {
		if e := &c.plan.Paths[i]; e.Content == plan.Empty && e.Kind != hostfs.Dir {
			return true
		}
	}
	return false
}

// takeVoid makes the file that hides others: a device on a mount without devices, which nobody
// can open.
func (c *compiler) takeVoid() {
	if !c.masksFiles() {
		return
	}
	b := c.do("make a mask for files")
	c.void = b.OpenTree(sysprog.Cwd(), "/dev/null", sysprog.OpenTreeClone|sysprog.AtSymlinkNoFollow)
	attr := sysprog.MountAttr{Set: ofHost | sysprog.MountAttrReadOnly | sysprog.MountAttrNoExec, Propagation: sysprog.MountPrivate}
	b.MountSetattr(c.void, "", sysprog.AtEmptyPath, attr)
}

// newFolder makes a folder in the store and returns a detached mount of it. The umask is 0.
func (c *compiler) newFolder(b sysprog.Block, mode uint32) sysprog.Arg {
	name := strconv.Itoa(c.stored)
	c.stored++
	b.Mkdirat(c.store, name, mode)
	return b.OpenTree(c.store, name, sysprog.OpenTreeClone)
}

// sized adds the memory limit as the store's size to its mount options, because the store is
// in memory.
func (c *compiler) sized(options ...string) []string {
	if limit := c.plan.Limit(plan.LimitMemory); limit > 0 {
		options = append(options, "size="+strconv.FormatInt(limit, 10))
	}
	return options
}
