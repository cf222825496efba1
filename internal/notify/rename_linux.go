//go:build amd64 || arm64

package notify

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// rename moves a file, or exchanges two.
func (c *call) rename(oldfd int32, old uint64, newfd int32, address, flags uint64) {
	flags = uint64(uint32(flags))
	if !renameFlags(flags) {
		c.fail(unix.EINVAL)
		return
	}
	if c.needsAlone() {
		return
	}
	from, removed := c.place(oldfd, old)
	if removed != nil && !errors.Is(removed, errRemoved) {
		c.unplaced(plan.OpRename, oldfd, old, removed)
		return
	}
	if removed == nil {
		defer from.close()
	}
	to, err := c.place(newfd, address)
	if err != nil {
		c.unplaced(plan.OpRename, newfd, address, err)
		return
	}
	defer to.close()
	if removed != nil {
		c.unplaced(plan.OpRename, oldfd, old, removed)
		return
	}
	k, err := from.kind()
	if err == nil && k == missing {
		err = unix.ENOENT
	}
	if err != nil {
		c.unplaced(plan.OpRename, oldfd, old, err)
		return
	}
	if !c.b.guards(from.path()) && !c.b.guards(to.path()) {
		at, other := from.path(), to.path()
		if c.b.config.Judge().Path(at).Access == policy.Write {
			at, other = other, at
		}
		c.alsoRefused(plan.OpRename, at, other)
		c.outside(plan.OpRename, at)
		return
	}
	c.move(from, to, k, uint(flags))
}

// renameFlags reports whether the kernel takes the flags.
func renameFlags(flags uint64) bool {
	const exclude = unix.RENAME_NOREPLACE | unix.RENAME_WHITEOUT
	return flags&^(exclude|unix.RENAME_EXCHANGE) == 0 && (flags&exclude == 0 || flags&unix.RENAME_EXCHANGE == 0)
}

func (c *call) move(from, to *place, k kind, flags uint) {
	exchange := flags&unix.RENAME_EXCHANGE != 0
	c.alsoRefused(plan.OpRename, from.path(), to.path())
	// What stays is told before somebody is asked about the other name in vain.
	if !c.allows(plan.OpRename, from.path()) || c.stays(plan.OpRename, from.path()) ||
		!c.allows(plan.OpRename, to.path()) || c.stays(plan.OpRename, to.path()) || !c.carries(from, to, k) {
		return
	}
	if exchange {
		other, err := to.kind()
		if err == nil && other == missing {
			err = unix.ENOENT
		}
		if err != nil {
			c.failAt(to, err)
			return
		}
		if !c.carries(to, from, other) {
			return
		}
	}
	if !c.gitRename(from, to, flags) {
		return
	}
	if err := c.b.together(from, to); err != nil {
		c.failWith(err)
		return
	}
	c.finish(c.as(func() error { return unix.Renameat2(from.dir, from.last(), to.dir, to.last(), flags) }))
}

// carries judges what a folder brings along: under its new name, a rule may be
// about something in it, and a rule about something in it may not follow it from
// under its old name. A link brings along whatever it will lead to.
func (c *call) carries(from, to *place, k kind) bool {
	switch k {
	case unix.S_IFDIR:
		return c.carriesNothing(from, from.path()) && c.carriesNothing(from, to.path())
	case unix.S_IFLNK:
		text, err := linkText(from.dir, from.name)
		if err != nil {
			c.failWith(err)
			return false
		}
		return !c.leads(plan.OpRename, to.path(), text)
	}
	return true
}

// carriesNothing judges what is in a folder as if the folder were at path. Links in it are
// judged where they come to: where they are, they may be the user's own.
func (c *call) carriesNothing(folder *place, path string) bool {
	judge, moved := c.b.config.Judge(), folder.path() != path
	for _, below := range judge.Below(path) {
		if !folder.holds(below) && !(moved && folder.holdsLinkTo(below)) {
			continue
		}
		if v := judge.Path(path + "/" + below); v.Access != policy.Write {
			c.refuse(plan.OpRename, path+"/"+below, v)
			return false
		}
	}
	if !judge.NeedsWalk(folder.path(), path) {
		return true
	}
	w := walk{judge: judge, left: maxCarried, links: moved}
	if at, v, found := w.folder(folder.dir, folder.name, path); found {
		c.refuse(plan.OpRename, at, v)
		return false
	}
	return true
}

// holds reports whether the folder at the place has something of that name, or may have.
func (p *place) holds(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(p.dir, p.name+"/"+name, &st, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT
}

// holdsLinkTo reports whether a symbolic link is on the way to a name in the folder.
func (p *place) holdsLinkTo(name string) bool {
	for i := range len(name) {
		var st unix.Stat_t
		if name[i] == '/' && unix.Fstatat(p.dir, p.name+"/"+name[:i], &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return true
		}
	}
	return false
}

// maxCarried bounds how much of a folder is looked at before it is moved.
const maxCarried = 20000

// leads refuses a symbolic link by which files would get names that a rule is about.
func (c *call) leads(op plan.Op, path, text string) bool {
	v, found := c.b.config.Judge().Leads(path, text)
	if found {
		c.refuse(op, path, v)
	}
	return found
}
