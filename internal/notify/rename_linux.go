//go:build amd64 || arm64

package notify

import (
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// rename moves a file, or exchanges two.
func (c *call) rename(oldfd int32, old uint64, newfd int32, address, flags uint64) {
	from, err := c.place(oldfd, old)
	if err != nil {
		c.resume()
		return
	}
	defer from.close()
	to, err := c.place(newfd, address)
	if err != nil {
		c.resume()
		return
	}
	defer to.close()
	k, err := from.kind()
	if err != nil || k == missing {
		c.resume()
		return
	}
	if !c.b.guards(from.path()) && !c.b.guards(to.path()) {
		c.outside(plan.OpRename, to.path())
		return
	}
	c.move(from, to, k, uint(flags))
}

func (c *call) move(from, to *place, k kind, flags uint) {
	exchange := flags&unix.RENAME_EXCHANGE != 0
	if !c.allows(plan.OpRename, from.path()) || !c.allows(plan.OpRename, to.path()) ||
		c.stays(plan.OpRename, from.path()) || c.stays(plan.OpRename, to.path()) || !c.carries(from, to, k) {
		return
	}
	if exchange {
		other, err := to.kind()
		if err != nil || other == missing {
			c.resume()
			return
		}
		if !c.carries(to, from, other) {
			return
		}
	}
	if !c.gitRename(from, to, flags) {
		return
	}
	c.finish(c.as(func() error { return unix.Renameat2(from.dir, from.name, to.dir, to.name, flags) }))
}

// carries judges what a folder brings along: under its new name, a rule may be
// about something in it.
func (c *call) carries(from, to *place, k kind) bool {
	if k != unix.S_IFDIR {
		return true
	}
	dest := to.path()
	for _, below := range c.b.config.Judge().Below(dest) {
		var st unix.Stat_t
		if unix.Fstatat(from.dir, from.name+"/"+below, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		path := dest + "/" + below
		if v := c.b.config.Judge().Path(path); v.Access != policy.Write {
			c.refuse(plan.OpRename, path, v)
			return false
		}
	}
	if path, v, found := c.b.matchInside(from, dest); found {
		c.refuse(plan.OpRename, path, v)
		return false
	}
	return true
}

// maxCarried bounds how much of a folder is looked at before it is moved.
const maxCarried = 20000

// matchInside looks for something that only the patterns that take more than
// comparing names can find.
func (b *Broker) matchInside(from *place, dest string) (string, plan.Verdict, bool) {
	if !b.config.Judge().NeedsWalk(from.path(), dest) {
		return "", plan.Verdict{}, false
	}
	w := walk{judge: b.config.Judge(), left: maxCarried}
	return w.folder(from.dir, from.name, dest)
}
