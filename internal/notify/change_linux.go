//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// place finds the place that a path in the process's memory means, without following a link at
// its end. The error is what the call is answered with.
func (c *call) place(op plan.Op, dirfd int32, address uint64) (*place, error) {
	return c.placeNear(op, dirfd, address, nil)
}

// placeNear is place for a path that may lie in the directory of another one. That has to be
// closed later.
func (c *call) placeNear(op plan.Op, dirfd int32, address uint64, other *place) (*place, error) {
	text, err := c.pathText(address)
	if err != nil {
		return nil, err
	}
	p, err := c.pathname(dirfd, text)
	if unnamed(text) || namesOwn(text) {
		if err != nil {
			return nil, errGoOn
		}
		return nil, c.failMissing(op, p.full, false, errUnnamed)
	}
	if err != nil {
		if errors.Is(err, errRemoved) {
			return nil, errRemoved
		}
		return nil, c.failUnlessOutside(true, err)
	}
	if at := other.beside(p.full); at != nil {
		return at, nil
	}
	at, err := c.locate(p)
	if err != nil {
		return nil, c.failMissing(op, p.full, c.b.wouldGuard(p.full), err)
	}
	return at, nil
}

// existing finds what is at a place, which has to be something.
func (c *call) existing(op plan.Op, at *place) (kind, error) {
	k, err := at.kind()
	if err == nil && k == missing {
		err = unix.ENOENT
	}
	if err != nil {
		err = c.failMissing(op, at.path(), c.b.guards(at.path()), err)
	}
	return k, err
}

// A creation makes a new name: mkdir, mknod, symlink or link.
type creation struct {
	op  plan.Op
	git gitguard.Op
	// from is the name that a file has before a link gives it another, or nil.
	from *place
	// link is the text of the symbolic link that is made or linked, or empty.
	link string
	make func(at *place) error
}

func (c *call) create(n creation, dirfd int32, address uint64) error {
	at, err := c.place(n.op, dirfd, address)
	if err != nil {
		return err
	}
	defer at.close()
	if n.link == "" && n.from == nil && c.allowsByName(at, n.git) {
		return c.as(func() error { return n.make(at) })
	}
	path := at.path()
	guarded := c.b.guards(path)
	switch k, err := at.kind(); {
	case err != nil:
		return c.failMissing(n.op, path, guarded, err)
	case k != missing:
		return c.failUnlessOutside(guarded, unix.EEXIST)
	case !guarded:
		return c.leaveToKernel(n.op, path)
	}
	if err := c.denyUnlessAllowed(n.op, path); err != nil {
		return err
	}
	if n.link != "" {
		if err := c.denyIfLeads(n.op, path, n.link); err != nil {
			return err
		}
	}
	if err := c.denyGitChange(n.op, at, n.from, gitguard.Change{Op: n.git}); err != nil {
		return err
	}
	return c.as(func() error { return n.make(at) })
}

func (c *call) mkdir(dirfd int32, address, mode uint64) error {
	perm := c.masked(mode)
	return c.create(creation{op: plan.OpMkdir, git: gitguard.Mkdir, make: func(at *place) error {
		return unix.Mkdirat(at.dir, at.last(), perm)
	}}, dirfd, address)
}

func (c *call) mknod(dirfd int32, address, mode uint64) error {
	perm := c.masked(mode)
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR: // not even root may make devices inside
		return unix.EPERM
	default:
		return unix.EINVAL
	}
	return c.create(creation{op: plan.OpCreate, git: gitguard.Node, make: func(at *place) error {
		return unix.Mknodat(at.dir, at.last(), uint32(mode)&unix.S_IFMT|perm, 0)
	}}, dirfd, address)
}

func (c *call) symlink(target uint64, dirfd int32, address uint64) error {
	text, err := c.pathText(target)
	if err != nil {
		return err
	}
	return c.create(creation{op: plan.OpSymlink, git: gitguard.Symlink, link: text, make: func(at *place) error {
		return unix.Symlinkat(text, at.dir, at.last())
	}}, dirfd, address)
}

// link gives a file a second name.
func (c *call) link(oldfd int32, old uint64, newfd int32, address, flags uint64) error {
	if uint32(flags)&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	openFlags := uint64(unix.O_PATH | unix.O_NOFOLLOW)
	if flags&unix.AT_SYMLINK_FOLLOW != 0 {
		openFlags = unix.O_PATH
	}
	source, p, err := c.openSource(oldfd, old, flags, openFlags)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	from, err := c.sourcePlace(source, p, openFlags)
	if err != nil {
		c.recordNewName(source, newfd, address)
		return err
	}
	n := creation{op: plan.OpLink, git: gitguard.Create, from: from} // of a file that had no name
	if from != nil {
		defer from.close()
		n.git = gitguard.Link
	}
	n.link, err = linkText(source, "")
	if err != nil && err != unix.ENOENT { // which it is for a file that is no symbolic link
		return err
	}
	n.make = func(at *place) error {
		if from != nil && (from.host || at.host) {
			return c.b.linkGiven(source, from, at)
		}
		return unix.Linkat(unix.AT_FDCWD, selfFD(source), at.dir, at.last(), unix.AT_SYMLINK_FOLLOW)
	}
	return c.create(n, newfd, address)
}

// recordNewName records the new name of a link whose source is denied, if that is denied, too.
func (c *call) recordNewName(source int, newfd int32, address uint64) {
	old, oldErr := realPath(source)
	text, textErr := c.pathText(address)
	if oldErr != nil || textErr != nil {
		return
	}
	p, err := c.pathname(newfd, text)
	if err != nil {
		return
	}
	if at, err := c.locate(p); err == nil {
		c.recordOther(plan.OpLink, old, at.path())
		at.close()
	}
}

// openSource opens the file that is to get another name. The pathname is empty for a
// descriptor.
func (c *call) openSource(dirfd int32, address, flags, openFlags uint64) (int, pathname, error) {
	text, err := c.text(address)
	if err == nil && text == "" && flags&unix.AT_EMPTY_PATH == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return -1, pathname{}, err
	}
	number, own := ownDescriptor(text)
	switch {
	case text == "":
		number = dirfd
		fallthrough
	case own && flags&unix.AT_SYMLINK_FOLLOW != 0:
		source, err := unix.Open(c.dirLink(number), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			err = unix.EBADF
		}
		return source, pathname{}, err
	}
	p := pathname{full: text}
	if !namesOwn(text) {
		if p, err = c.pathname(dirfd, text); err != nil {
			return -1, p, c.failUnlessOutside(true, err)
		}
	}
	source, err := c.openPath(p, openFlags)
	if err != nil {
		err = c.failMissing(plan.OpLink, p.full, c.b.wouldGuard(p.full), err)
	}
	return source, p, err
}

// sourcePlace is the name that a file has before it gets another, or nil if it has none. That
// name is judged: under the new one, rules about it would not be found.
func (c *call) sourcePlace(source int, p pathname, flags uint64) (*place, error) {
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil || st.Nlink == 0 {
		return nil, err
	}
	at, err := c.placeOf(source, p, flags)
	if err != nil || !c.b.guards(at.path()) {
		return at, err
	}
	if v := c.b.config.Judge().Path(at.path()); v.Access != policy.Write {
		c.record(plan.OpLink, at.path(), v)
		at.close()
		return nil, unix.EACCES
	}
	return at, nil
}

// linkGiven gives a file a second name where one of the two names was granted. Both have to be
// writable: what can only be read could be written by its new name.
func (b *Broker) linkGiven(source int, from, at *place) error {
	if b.config.Judge().Path(from.path()).Access != policy.Write {
		return unix.EXDEV // as the kernel says of two mounts
	}
	if err := b.toOneSide(from, at); err != nil {
		return err
	}
	fd, err := unix.Openat(from.dir, from.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !sameFile(fd, source) {
		return unix.ENOENT
	}
	return unix.Linkat(unix.AT_FDCWD, selfFD(fd), at.dir, at.name, unix.AT_SYMLINK_FOLLOW)
}

// unlink answers unlink and rmdir.
func (c *call) unlink(dirfd int32, address, flags uint64) error {
	if uint32(flags)&^unix.AT_REMOVEDIR != 0 {
		return unix.EINVAL
	}
	at, err := c.place(plan.OpUnlink, dirfd, address)
	if err != nil {
		return err
	}
	defer at.close()
	path := at.path()
	remove := func() error { return unix.Unlinkat(at.dir, at.last(), int(flags)) }
	if _, pinned := c.b.config.Judge().Pinned(path); !pinned && !at.slash && c.allowsByName(at, gitguard.Remove) {
		if err := c.as(remove); err != unix.ENOENT {
			return err
		}
	}
	k, err := c.existing(plan.OpUnlink, at)
	if err != nil {
		return err
	}
	switch guarded := c.b.guards(path); {
	case at.slash && k != unix.S_IFDIR && uint32(flags) == 0: // rmdir checks the rights first
		return c.failMissing(plan.OpUnlink, path, guarded, unix.ENOTDIR)
	case !guarded:
		return c.leaveToKernel(plan.OpUnlink, path)
	}
	if err := c.denyUnlessAllowed(plan.OpUnlink, path); err != nil {
		return err
	}
	if err := c.denyIfPinned(plan.OpUnlink, path); err != nil {
		return err
	}
	if err := c.denyGit(plan.OpUnlink, at); err != nil {
		return err
	}
	return c.as(remove)
}

// truncate is never run by the kernel: the Landlock domain does not deny it.
func (c *call) truncate(address, size uint64) error {
	if int64(size) < 0 {
		return unix.EINVAL
	}
	text, err := c.pathText(address)
	if err != nil {
		return err
	}
	p, err := c.pathname(unix.AT_FDCWD, text)
	if errors.Is(err, errRemoved) && unnamed(text) {
		return unix.EISDIR
	}
	if err != nil {
		return err
	}
	fd, at, err := c.openToTruncate(p)
	if err != nil {
		if c.askAboutHidden(plan.OpWrite, p.full) {
			return errAnswered
		}
		c.noteAttempt(plan.OpWrite, p.full)
		return err
	}
	defer unix.Close(fd)
	defer at.close()
	if err := c.denyUnlessAllowed(plan.OpWrite, at.path()); err != nil {
		return err
	}
	if err := c.denyGit(plan.OpWrite, at); err != nil {
		return err
	}
	var limit unix.Rlimit // the process's: the broker's own is another
	if err := unix.Prlimit(c.pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return err
	}
	if size > limit.Cur {
		return unix.EFBIG
	}
	return c.as(func() error { return truncateOpen(fd, size) })
}

// openToTruncate opens the file that is to be truncated, with its place.
func (c *call) openToTruncate(p pathname) (fd int, at *place, err error) {
	fd, real, found, err := c.b.openGiven(p.full)
	switch {
	case err != nil:
		return -1, nil, err
	case found:
		at, err = c.b.locate(real)
	default:
		if fd, err = c.openPath(p, unix.O_PATH); err != nil {
			return -1, nil, err
		}
		at, err = c.placeOf(fd, p, unix.O_PATH)
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
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFREG:
	default:
		return unix.EINVAL
	}
	w, err := unix.Open(selfFD(fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(w)
	return unix.Ftruncate(w, int64(size))
}

// rename moves a file, or exchanges two.
func (c *call) rename(oldfd int32, old uint64, newfd int32, address, flags uint64) error {
	const exclude = unix.RENAME_NOREPLACE | unix.RENAME_WHITEOUT
	flags = uint64(uint32(flags))
	exchange := flags&unix.RENAME_EXCHANGE != 0
	if flags&^(exclude|unix.RENAME_EXCHANGE) != 0 || flags&exclude != 0 && exchange {
		return unix.EINVAL
	}
	if c.needsLockAlone() {
		return errAlone
	}
	c.readBoth(old, address)
	from, removed := c.place(plan.OpRename, oldfd, old)
	if removed != nil && removed != errRemoved {
		return removed
	}
	if removed == nil {
		defer from.close()
	}
	to, err := c.placeNear(plan.OpRename, newfd, address, from)
	if err != nil {
		return err
	}
	defer to.close()
	if removed != nil {
		return removed
	}
	k, err := c.existing(plan.OpRename, from)
	if err != nil {
		return err
	}
	if !c.b.guards(from.path()) && !c.b.guards(to.path()) {
		at, other := from.path(), to.path()
		if c.b.config.Judge().Path(at).Access == policy.Write {
			at, other = other, at
		}
		c.recordOther(plan.OpRename, at, other)
		return c.leaveToKernel(plan.OpRename, at)
	}
	c.recordOther(plan.OpRename, from.path(), to.path())
	// That a file stays is found before somebody is asked about the other name in vain.
	for _, at := range []*place{from, to} {
		if err := c.denyUnlessAllowed(plan.OpRename, at.path()); err != nil {
			return err
		}
		if err := c.denyIfPinned(plan.OpRename, at.path()); err != nil {
			return err
		}
	}
	if err := c.denyCarried(from, to, k); err != nil {
		return err
	}
	if exchange {
		other, err := to.kind()
		if err == nil && other == missing {
			err = unix.ENOENT
		}
		if err != nil {
			return c.failUnlessOutside(c.b.guards(to.path()), err)
		}
		if err := c.denyCarried(to, from, other); err != nil {
			return err
		}
	}
	err = c.denyGitChange(plan.OpRename, to, from, gitguard.Change{Op: gitguard.Rename, Exchange: exchange, NoReplace: flags&unix.RENAME_NOREPLACE != 0})
	if err != nil {
		return err
	}
	if err := c.b.toOneSide(from, to); err != nil {
		return err
	}
	return c.as(func() error { return unix.Renameat2(from.dir, from.last(), to.dir, to.last(), uint(flags)) })
}

// denyCarried judges what a directory brings along: under its new name, a rule may be about
// something in it, and a rule about something in it may not follow it from under its old name.
// A link brings along whatever it will lead to.
func (c *call) denyCarried(from, to *place, k kind) error {
	switch k {
	case unix.S_IFDIR:
		if err := c.denyContents(from, from.path()); err != nil {
			return err
		}
		return c.denyContents(from, to.path())
	case unix.S_IFLNK:
		text, err := linkText(from.dir, from.name)
		if err != nil {
			return err
		}
		return c.denyIfLeads(plan.OpRename, to.path(), text)
	}
	return nil
}

// maxCarried bounds how many files of a directory are judged before it is moved.
const maxCarried = 20000

// denyContents judges what is in a directory as if the directory were at path. Links in it are
// judged where they are moved to: where they are, they may be the user's own.
func (c *call) denyContents(dir *place, path string) error {
	files, moved := c.b.config.Judge(), dir.path() != path
	for _, below := range files.Below(path) {
		if !dir.holds(below) && !(moved && dir.holdsLinkTo(below)) {
			continue
		}
		if v := files.Path(path + "/" + below); v.Access != policy.Write {
			return c.deny(plan.OpRename, path+"/"+below, v)
		}
	}
	if !files.NeedsWalk(dir.path(), path) {
		return nil
	}
	t := treeJudge{judge: files, left: maxCarried, links: moved}
	if at, v, found := t.findDenied(dir.dir, dir.name, path); found {
		return c.deny(plan.OpRename, at, v)
	}
	return nil
}

// holds reports whether the directory at the place has something of that name, or may have.
func (p *place) holds(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(p.dir, p.name+"/"+name, &st, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT
}

// holdsLinkTo reports whether a symbolic link is on the way to a name in the directory.
func (p *place) holdsLinkTo(name string) bool {
	for i := range len(name) {
		var st unix.Stat_t
		if name[i] == '/' && unix.Fstatat(p.dir, p.name+"/"+name[:i], &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return true
		}
	}
	return false
}

// A treeJudge looks in a tree for a path that may not be written, and for a link that may not
// be there.
type treeJudge struct {
	judge *judge.Files
	left  int
	links bool // links are judged
}

var (
	tooLarge = plan.Decision{
		Access: policy.Read, Rule: "paths.protect", Reason: "the folder holds too many files to look for protected names in it: move it in parts",
	}
	unseen = plan.Decision{
		Access: policy.Read, Rule: "paths.protect", Reason: "the folder cannot be looked into for protected names: make it readable",
	}
)

// findDenied judges everything in a directory as if the directory were at path.
func (t *treeJudge) findDenied(dir int, name, path string) (string, plan.Decision, bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil { // its owner can hide what is in it even from the broker
		return path, unseen, true
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return path, unseen, true
	}
	for _, e := range entries {
		if t.left--; t.left < 0 {
			return path, tooLarge, true
		}
		at := path + "/" + e.Name()
		if v := t.judge.Path(at); v.Access != policy.Write {
			return at, v, true
		}
		if t.links && e.Type() == os.ModeSymlink {
			if text, err := linkText(fd, e.Name()); err != nil {
				return at, unseen, true
			} else if v, found := t.judge.Leads(at, text); found {
				return at, v, true
			}
		}
		if !e.IsDir() {
			continue
		}
		if p, v, found := t.findDenied(fd, e.Name(), at); found {
			return p, v, true
		}
	}
	return "", plan.Decision{}, false
}
