//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// An openCall is a call that opens a file.
type openCall struct {
	*call
	way     way
	flags   uint64
	mode    uint64
	resolve uint64
}

const writeIntent = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC

// openat is open, creat and openat: the flags are in the arguments.
func (c *call) openat(dirfd int32, address, flags, mode uint64) {
	if c.kernelReads(flags) {
		c.observe(plan.OpRead, dirfd, address)
		return
	}
	o := openCall{call: c, flags: flags, mode: mode}
	if o.invalid() {
		c.fail(unix.EINVAL)
		return
	}
	text, err := c.text(address)
	if err == nil && text == "" {
		err = unix.ENOENT
	}
	if err != nil {
		c.failWith(err)
		return
	}
	o.openText(dirfd, text)
}

// kernelReads reports whether the kernel may go on with an open that has these flags
// among its arguments. Those cannot change any more: the kernel opens nothing but
// what is judged so.
func (c *call) kernelReads(flags uint64) bool {
	return flags&writeIntent == 0 && !c.b.config.Reads
}

// opensNull answers an open of the null device for writing, which so many commands
// make that change nothing else. It is in no guarded folder, so the kernel goes on with
// it: a name that is changed meanwhile can be written only where the kernel itself lets
// it be, as in openCall.outside.
func (c *call) opensNull(address, flags uint64) bool {
	const null = "/dev/null"
	if !writes(flags) || c.b.config.Masks == nil || !c.b.config.Masks().Writable(null) {
		return false
	}
	name, err := c.text(address)
	if err != nil || name != null || c.b.guards(null) {
		return false
	}
	c.resume()
	return true
}

// writes reports whether an open gives a descriptor for writing, for which the Landlock
// domain demands the right to write.
func writes(flags uint64) bool {
	mode := flags & unix.O_ACCMODE
	return mode == unix.O_WRONLY || mode == unix.O_RDWR
}

// emptiesForNeither reports whether an open empties a file for a descriptor that can
// neither be read nor written, of the access mode 3, which is for ioctl alone. No right
// of a Landlock domain is asked for such a descriptor: the kernel would empty whatever it
// finds. No program needs both, and none gets both.
func emptiesForNeither(flags uint64) bool {
	return flags&(unix.O_ACCMODE|unix.O_TRUNC|unix.O_PATH) == unix.O_ACCMODE|unix.O_TRUNC
}

// invalid reports whether the kernel takes no open with these flags.
func (o *openCall) invalid() bool {
	const both = unix.O_CREAT | unix.O_DIRECTORY // says EINVAL since Linux 6.4
	if o.flags&unix.O_PATH != 0 {
		return false
	}
	if o.flags&both == both {
		return true
	}
	const unnamed = unix.O_TMPFILE &^ unix.O_DIRECTORY
	return o.flags&unnamed != 0 && (o.flags&unix.O_DIRECTORY == 0 || o.flags&unix.O_ACCMODE == unix.O_RDONLY)
}

// openText opens what the process wrote.
func (o openCall) openText(dirfd int32, text string) {
	if emptiesForNeither(o.flags) {
		o.fail(unix.EINVAL)
		return
	}
	var err error
	o.way, err = o.wayOf(dirfd, text)
	if errors.Is(err, errRemoved) {
		err = o.inRemoved(text)
	}
	fd, own := ownDescriptor(text)
	switch {
	case err == nil:
		o.open()
	case errors.Is(err, errNoPath) && o.flags&(writeIntent|unix.O_PATH) != 0 && !o.onlyReads():
		o.resume() // what has no path is in no guarded directory
	case own:
		o.readOwn(fd)
	default:
		o.failWith(err)
	}
}

// inRemoved is the error of an open in a directory that was removed: the kernel finds some
// before it looks for the name.
func (o *openCall) inRemoved(text string) error {
	const exclusive = unix.O_CREAT | unix.O_EXCL
	itself := unnamed(text) // by "."; what leads up has a path
	switch {
	case o.flags&unix.O_TMPFILE == unix.O_TMPFILE:
	case itself && o.flags&exclusive == exclusive:
		return unix.EEXIST
	case itself && o.flags&writeIntent != 0, o.flags&unix.O_CREAT != 0 && strings.HasSuffix(text, "/"):
		return unix.EISDIR
	}
	return errRemoved
}

// openat2 has its flags in memory.
func (c *call) openat2(dirfd int32, address, how, size uint64) {
	var raw [24]byte
	if size < uint64(len(raw)) {
		c.resume()
		return
	}
	if n, err := c.readOnce(how, raw[:]); err != nil || n < len(raw) {
		c.resume()
		return
	}
	o := openCall{call: c, flags: binary.NativeEndian.Uint64(raw[:]), mode: binary.NativeEndian.Uint64(raw[8:]), resolve: binary.NativeEndian.Uint64(raw[16:])}
	text, err := c.text(address)
	if err != nil {
		c.failWith(err)
		return
	}
	if o.resolve&(unix.RESOLVE_BENEATH|unix.RESOLVE_IN_ROOT) != 0 {
		text, err = o.beneath(dirfd, text)
	}
	if err != nil {
		c.failWith(err)
		return
	}
	o.openText(dirfd, text)
}

// beneath is for a path that may not leave the folder it begins in. The folder
// is looked up in; what is found gives the real path.
func (o *openCall) beneath(dirfd int32, text string) (string, error) {
	link := o.proc("cwd")
	if dirfd != unix.AT_FDCWD {
		link = o.descriptorLink(dirfd)
	}
	base, err := unix.Open(link, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(base)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | o.flags&unix.O_NOFOLLOW, Resolve: o.resolve | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(base, text, &how)
	if err == nil {
		defer unix.Close(fd)
		return realPath(fd)
	}
	if err != unix.ENOENT || o.flags&unix.O_CREAT == 0 {
		return "", err
	}
	dir, name := splitLast(text)
	if name == "" || name == "." || name == ".." {
		return "", unix.EISDIR
	}
	how.Flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if fd, err = unix.Openat2(base, dir, &how); err != nil {
		return "", err
	}
	defer unix.Close(fd)
	real, err := realPath(fd)
	// A dangling link at the end must not be followed out of the folder.
	o.flags |= unix.O_NOFOLLOW
	return real + "/" + name, err
}

func splitLast(path string) (dir, name string) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i+1], path[i+1:]
		}
	}
	return ".", path
}

func (o *openCall) open() {
	switch {
	case o.flags&unix.O_PATH != 0:
		o.resume()
	case o.flags&unix.O_TMPFILE == unix.O_TMPFILE:
		o.unnamed()
	case o.flags&writeIntent != 0:
		o.write()
	default:
		o.read()
	}
}

// answerWith answers with the error that the broker found for a path. Where that is in
// no guarded directory the kernel finds the error, unless the call could read a hidden
// file or empty a protected one, under a name that is changed meanwhile.
func (o *openCall) answerWith(w way, err error) {
	o.suspect(o.writeOp(), o.way.whole)
	if errors.Is(err, errUnnamed) && (o.onlyReads() || w != o.way) { // a link may be another one by now
		err = o.emptiesDirectory(w)
	}
	if o.onlyReads() || !errors.Is(err, errUnnamed) && o.b.wouldGuard(w.whole) {
		o.failWith(err)
		return
	}
	o.resume()
}

// emptiesDirectory is the error of an open that creates or empties what is named "/",
// "." or "..".
func (o *openCall) emptiesDirectory(w way) error {
	fd, err := o.hold(w, unix.O_PATH)
	if err != nil {
		return err
	}
	unix.Close(fd)
	const exclusive = unix.O_CREAT | unix.O_EXCL
	if o.flags&exclusive == exclusive {
		return unix.EEXIST
	}
	return unix.EISDIR
}

// onlyReads reports whether the descriptor is for reading, although the call may
// create or empty the file, and the kernel would not refuse what it may not do:
// reading where that has to be judged, and emptying, which the Landlock domain
// leaves to the broker. For one that also writes the kernel's answer is safe: it
// can be had only for what may be written.
func (o *openCall) onlyReads() bool {
	return o.flags&(unix.O_ACCMODE|unix.O_PATH) == unix.O_RDONLY && (o.b.config.Reads || o.flags&unix.O_TRUNC != 0)
}

// write opens a file for writing, or creates it.
func (o *openCall) write() {
	w := o.way
	for range maxLinks + 1 {
		at, err := o.locate(w)
		if err != nil {
			if !o.asksUnseen(o.writeOp(), w.whole) {
				o.answerWith(w, err)
			}
			return
		}
		defer at.close() // the way on may begin there
		next, done := o.writeStep(at)
		if done {
			return
		}
		w = next
	}
	o.fail(unix.ELOOP)
}

// writeStep opens what is at the place, unless it is a link: then it returns
// where that leads.
func (o *openCall) writeStep(at *place) (next way, done bool) {
	if pathx.Within("/proc", at.dirPath) { // its links mean something else to each process
		if o.onlyReads() {
			o.flags &^= writeIntent
			o.read()
			return way{}, true
		}
		if k, err := at.kind(); err == nil && k == unix.S_IFREG && at.readOnly() {
			o.record(plan.OpWrite, at.path(), plan.Verdict{
				Access: policy.Read, Rule: "paths.protect", Subject: "/proc", At: "/proc", Reason: "by it the kernel and other processes can be changed",
				Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: /proc"},
			})
		}
		o.resume()
		return way{}, true
	}
	k, err := at.kind()
	if err == nil && k == unix.S_IFLNK && o.follows(at) {
		if next, err = o.behind(at); err == nil {
			return next, false
		}
	}
	switch {
	case err == nil:
		o.writeAt(at, k)
	case !o.asksUnseen(o.writeOp(), at.path()):
		o.answerWith(way{whole: at.path()}, err)
	}
	return way{}, true
}

// follows reports whether a link at the place is followed. With a slash behind it, it
// is in any case, unless the call creates a file, which then fails.
func (o *openCall) follows(at *place) bool {
	switch {
	case o.resolve&unix.RESOLVE_NO_SYMLINKS != 0 || at.slash && o.flags&unix.O_CREAT != 0:
		return false
	case at.slash:
		return true
	}
	const exclusive = unix.O_CREAT | unix.O_EXCL
	return o.flags&unix.O_NOFOLLOW == 0 && o.flags&exclusive != exclusive
}

// writeAt opens what is at the place, which is no link that is to be followed.
func (o *openCall) writeAt(at *place, k kind) {
	if err := o.impossible(at, k); err != nil {
		o.suspect(o.writeOp(), o.way.whole)
		if o.onlyReads() {
			o.failWith(err)
		} else {
			o.failAt(at, err)
		}
		return
	}
	if k != missing && o.flags&unix.O_ACCMODE == unix.O_RDONLY && (k != unix.S_IFREG || o.flags&unix.O_TRUNC == 0) {
		o.readExisting(at, k) // there is nothing to create or to empty
		return
	}
	op, path := plan.OpWrite, at.path()
	if k == missing {
		op = plan.OpCreate
	}
	if !o.b.guards(path) {
		o.writeOutside(op, at)
		return
	}
	if !o.allows(op, path) || !o.git(op, at, nil) {
		return
	}
	if k == unix.S_IFIFO {
		o.openFIFO(at)
		return
	}
	perm := o.permissions()
	fd, err := o.opens(func() (int, error) { return unix.Openat(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW, perm) })
	o.giveOpened(fd, err)
}

func (o *openCall) readExisting(at *place, k kind) {
	if !o.onlyReads() && !o.b.guards(at.path()) {
		o.resume()
		return
	}
	o.flags &^= unix.O_CREAT
	if k != unix.S_IFIFO { // of which there is nothing to empty, but it takes the right to write
		o.flags &^= unix.O_TRUNC
	}
	o.readAt(at, k)
}

// impossible is the error of an open that cannot succeed, in the order in which the
// kernel looks for them.
func (o *openCall) impossible(at *place, k kind) error {
	creates, exclusive := o.flags&unix.O_CREAT != 0, o.flags&unix.O_EXCL != 0
	switch {
	case creates && at.slash:
		return unix.EISDIR
	case k == missing && !creates:
		return unix.ENOENT
	case k == missing:
		return nil
	case at.host && (k == unix.S_IFCHR || k == unix.S_IFBLK):
		return unix.EACCES // no device of the host's, which the sandbox's mounts would not open
	case creates && exclusive:
		return unix.EEXIST
	case creates && k == unix.S_IFDIR:
		return unix.EISDIR
	case k != unix.S_IFDIR && (at.slash || o.flags&unix.O_DIRECTORY != 0):
		return unix.ENOTDIR
	case k == unix.S_IFLNK:
		return unix.ELOOP
	case k == unix.S_IFDIR:
		return unix.EISDIR
	}
	return nil
}

// writeOutside is for a path in no guarded folder.
func (o *openCall) writeOutside(op plan.Op, at *place) {
	path := at.path()
	if !o.onlyReads() {
		o.outside(op, path)
		return
	}
	if !o.allows(op, path) { // to be created or emptied
		return
	}
	perm := o.permissions()
	fd, err := o.opens(func() (int, error) { return unix.Openat(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW, perm) })
	o.giveOpened(fd, err)
}

// kernelFlags are the flags for the broker's own open.
func (o *openCall) kernelFlags() int {
	return int(o.flags) | unix.O_CLOEXEC | unix.O_NOCTTY
}

// permissions are those that the kernel would have given: without the mask of
// the process, and without the bits that give a program its owner's rights.
func (o *openCall) permissions() uint32 {
	if o.flags&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) == 0 {
		return 0
	}
	return o.masked(o.mode)
}

// masked takes the umask, and the bits for setting ids, off a mode.
func (c *call) masked(mode uint64) uint32 { return uint32(mode) & 0o1777 &^ c.umask() }

func (o *openCall) giveOpened(fd int, err error) {
	if err != nil {
		o.failWith(err)
		return
	}
	if o.flags&writeIntent != 0 {
		o.give(fd, o.flags&unix.O_CLOEXEC != 0)
	} else {
		o.giveToRead(fd, o.flags&unix.O_CLOEXEC != 0)
	}
}

// unnamed makes a file with no name in a folder.
func (o *openCall) unnamed() {
	dir, path, err := o.unnamedIn()
	if err != nil {
		if !o.asksUnseen(plan.OpCreate, o.way.whole) {
			o.answerUnnamed(err)
		}
		return
	}
	defer unix.Close(dir)
	if !o.b.guards(path) {
		o.outside(plan.OpCreate, path)
		return
	}
	if !o.allows(plan.OpCreate, path) {
		return
	}
	perm := o.permissions()
	fd, err := o.opens(func() (int, error) { return unix.Openat(dir, ".", o.kernelFlags(), perm) })
	o.giveOpened(fd, err)
}

// answerUnnamed answers with the error that the directory's path gave.
func (o *openCall) answerUnnamed(err error) {
	if o.way.whole == "" || o.b.wouldGuard(o.way.whole+"/x") {
		o.failWith(err)
		return
	}
	o.resume()
}

// unnamedIn opens the folder for a file with no name, with its path.
func (o *openCall) unnamedIn() (dir int, real string, err error) {
	if fd, real, found, err := o.b.given(o.way.whole); found {
		return fd, real, err
	}
	if dir, err = o.hold(o.way, unix.O_PATH|unix.O_DIRECTORY|o.flags&unix.O_NOFOLLOW); err != nil {
		return -1, "", err
	}
	if real, err = folderPath(dir); err != nil {
		unix.Close(dir)
	}
	return dir, real, err
}
