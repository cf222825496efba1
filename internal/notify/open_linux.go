//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// An openCall is a call that opens a file.
type openCall struct {
	*call
	path    pathname
	flags   uint64
	mode    uint64
	resolve uint64
	creates bool // there is no file yet; with O_EXCL, or the call fails
}

const (
	writeIntent = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	exclusive   = unix.O_CREAT | unix.O_EXCL
)

// openat answers open, creat and openat, whose flags are in the arguments.
func (c *call) openat(dirfd int32, address, flags, mode uint64) error {
	o := &openCall{call: c, flags: flags, mode: mode}
	if o.invalid() {
		return unix.EINVAL
	}
	text, err := c.pathText(address)
	if err != nil {
		return err
	}
	return o.openText(dirfd, text)
}

// openat2 answers openat2, whose flags are in memory. The kernel runs a call whose arguments
// cannot be read: it cannot read them either.
func (c *call) openat2(dirfd int32, address, how, size uint64) error {
	const howSize = 24
	if size < howSize {
		return errGoOn
	}
	raw, err := c.bytes(how, howSize)
	if err != nil {
		return errGoOn
	}
	o := &openCall{call: c, flags: binary.NativeEndian.Uint64(raw), mode: binary.NativeEndian.Uint64(raw[8:]), resolve: binary.NativeEndian.Uint64(raw[16:])}
	text, err := c.pathText(address)
	if err == nil && o.resolve&(unix.RESOLVE_BENEATH|unix.RESOLVE_IN_ROOT) != 0 {
		text, err = o.beneath(dirfd, text)
	}
	if err != nil {
		return err
	}
	return o.openText(dirfd, text)
}

// invalid reports whether the kernel takes no open with these flags.
func (o *openCall) invalid() bool {
	const both = unix.O_CREAT | unix.O_DIRECTORY // EINVAL since Linux 6.4
	if o.flags&unix.O_PATH != 0 {
		return false
	}
	if o.flags&both == both {
		return true
	}
	const unnamed = unix.O_TMPFILE &^ unix.O_DIRECTORY
	return o.flags&unnamed != 0 && (o.flags&unix.O_DIRECTORY == 0 || o.flags&unix.O_ACCMODE == unix.O_RDONLY)
}

// emptiesForNeither reports whether an open empties a file for a descriptor that can neither be
// read nor written, of the access mode 3, which is for ioctl alone. Landlock asks for no right
// for such a descriptor, so the kernel would empty whatever it finds. No program needs both, and
// none gets both.
func (o *openCall) emptiesForNeither() bool {
	return o.flags&(unix.O_ACCMODE|unix.O_TRUNC|unix.O_PATH) == unix.O_ACCMODE|unix.O_TRUNC
}

// onlyReads reports whether the descriptor is for reading, although the call may create or
// empty the file, and the kernel would not deny what the rules deny: reading, where that has
// to be judged, and emptying, which the Landlock domain leaves to the broker. For a descriptor
// that also writes, the kernel's answer is safe: it gives one only for what may be written.
func (o *openCall) onlyReads() bool {
	return o.flags&(unix.O_ACCMODE|unix.O_PATH) == unix.O_RDONLY && (o.b.config.Reads || o.flags&unix.O_TRUNC != 0)
}

// writeOp is what an open for writing does to a name that leads nowhere.
func (o *openCall) writeOp() plan.Op {
	if o.flags&unix.O_CREAT != 0 {
		return plan.OpCreate
	}
	return plan.OpWrite
}

// beneath is the real path of one that may not leave the directory it begins in.
func (o *openCall) beneath(dirfd int32, text string) (string, error) {
	base, err := unix.Open(o.dirLink(dirfd), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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
	// A dangling link at the end must not be followed out of the directory.
	o.flags |= unix.O_NOFOLLOW
	return real + "/" + name, err
}

func splitLast(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i+1], path[i+1:]
	}
	return ".", path
}

// openText opens the path that the process gave.
func (o *openCall) openText(dirfd int32, text string) error {
	if o.emptiesForNeither() {
		return unix.EINVAL
	}
	var err error
	o.path, err = o.pathname(dirfd, text)
	switch {
	case errors.Is(err, errRemoved):
		return o.failInRemoved(text)
	case errors.Is(err, errNoPath):
		return o.openWithoutPath(text)
	case err != nil:
		return err
	case o.flags&unix.O_PATH != 0:
		return errGoOn
	case o.flags&unix.O_TMPFILE == unix.O_TMPFILE:
		return o.createUnnamed()
	case o.flags&writeIntent != 0:
		return o.write()
	}
	return o.read()
}

// failInRemoved is the error of an open in a directory that was removed: the kernel finds some
// before it looks for the name.
func (o *openCall) failInRemoved(text string) error {
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

// write opens a file for writing, or creates it.
func (o *openCall) write() error {
	inProc := func(at *place) bool { return pathx.Within("/proc", at.dirPath) } // whose links differ for each process
	at, k, last, err := o.follow(o.path, func(at *place) bool { return inProc(at) || !o.follows(at) }, o.createsByName)
	switch {
	case errors.Is(err, errNoPath):
		return o.openWithoutPath(last.full)
	case err != nil && o.askAboutHidden(o.writeOp(), last.full):
		return errAnswered
	case err != nil:
		return o.failWrite(last, err)
	}
	defer at.close()
	o.creates = k == unknown || k == missing
	if k == unknown {
		err := o.openAndGive(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW)
		if err == unix.EEXIST {
			o.noteAttempt(o.writeOp(), o.path.full)
		}
		return err
	}
	if !inProc(at) {
		return o.writeAt(at, k)
	}
	if o.onlyReads() {
		o.flags &^= writeIntent
		return o.read()
	}
	if k == unix.S_IFREG && at.readOnly() {
		o.record(plan.OpWrite, at.path(), plan.Decision{
			Access: policy.Read, Rule: "paths.protect", Subject: "/proc", At: "/proc", Reason: "by it the kernel and other processes can be changed",
			Origin: builtin("/proc"),
		})
	}
	return errGoOn
}

// createsByName reports whether the call creates a file at the place or fails, and the rules
// allow that name. What is there is then for the kernel to find.
func (o *openCall) createsByName(at *place) bool {
	return o.flags&exclusive == exclusive && !at.slash && o.allowsByName(at, gitguard.Create)
}

// failWrite answers with the error that the broker found for a path. Where that is in no
// guarded directory the kernel finds the error, unless the call could read a hidden file or
// empty a protected one, under a name that is changed meanwhile.
func (o *openCall) failWrite(p pathname, err error) error {
	o.noteAttempt(o.writeOp(), o.path.full)
	if errors.Is(err, errUnnamed) && (o.onlyReads() || p != o.path) { // a link may be another one by now
		fd, openErr := o.openPath(p, unix.O_PATH)
		switch {
		case openErr != nil:
			err = openErr
		case o.flags&exclusive == exclusive:
			unix.Close(fd)
			err = unix.EEXIST
		default:
			unix.Close(fd)
			err = unix.EISDIR
		}
	}
	if o.onlyReads() || !errors.Is(err, errUnnamed) && o.b.wouldGuard(p.full) {
		return err
	}
	return errGoOn
}

// follows reports whether the call follows a link at the place. With a slash behind it, it
// does in any case, unless the call creates a file, which then fails.
func (o *openCall) follows(at *place) bool {
	switch {
	case o.resolve&unix.RESOLVE_NO_SYMLINKS != 0 || at.slash && o.flags&unix.O_CREAT != 0:
		return false
	case at.slash:
		return true
	}
	return o.flags&unix.O_NOFOLLOW == 0 && o.flags&exclusive != exclusive
}

// writeAt opens what is at the place, which is no link that is to be followed.
func (o *openCall) writeAt(at *place, k kind) error {
	path := at.path()
	guarded := o.b.guards(path)
	if err := o.impossible(at, k); err != nil {
		o.noteAttempt(o.writeOp(), o.path.full)
		if o.onlyReads() || guarded {
			return err
		}
		return errGoOn
	}
	if k != missing && o.flags&unix.O_ACCMODE == unix.O_RDONLY && (k != unix.S_IFREG || o.flags&unix.O_TRUNC == 0) {
		// There is nothing to create or to empty.
		if !o.onlyReads() && !guarded {
			return errGoOn
		}
		o.flags &^= unix.O_CREAT
		if k != unix.S_IFIFO { // which cannot be emptied, but O_TRUNC takes the right to write
			o.flags &^= unix.O_TRUNC
		}
		return o.readAt(at, k)
	}
	op := plan.OpWrite
	if k == missing {
		op = plan.OpCreate
	}
	if !guarded && !o.onlyReads() {
		return o.leaveToKernel(op, path)
	}
	if err := o.denyUnlessAllowed(op, path); err != nil {
		return err
	}
	if guarded {
		if err := o.denyGit(op, at); err != nil {
			return err
		}
	}
	if k == unix.S_IFIFO {
		return o.openFIFO(at)
	}
	return o.openAndGive(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW)
}

// impossible is the error of an open that cannot succeed, in the order in which the kernel
// looks for them.
func (o *openCall) impossible(at *place, k kind) error {
	creates := o.flags&unix.O_CREAT != 0
	switch {
	case creates && at.slash:
		return unix.EISDIR
	case k == missing && !creates:
		return unix.ENOENT
	case k == missing:
		return nil
	case at.host && isDevice(k):
		return unix.EACCES // no device of the host's, which the sandbox's mounts would not open
	case o.flags&exclusive == exclusive:
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

func isDevice(k kind) bool { return k == unix.S_IFCHR || k == unix.S_IFBLK }

// kernelFlags are the flags for the broker's own open.
func (o *openCall) kernelFlags() int {
	return int(o.flags) | unix.O_CLOEXEC | unix.O_NOCTTY
}

// openAndGive opens a file with the rights of the process and gives it the descriptor. The
// permissions of a new file are those that the kernel would give: without the umask, and
// without the bits that give a program its owner's rights.
func (o *openCall) openAndGive(dir int, name string, flags int) error {
	perm := uint32(0)
	if o.flags&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0 {
		perm = o.masked(o.mode)
	}
	var fd int
	err := o.as(func() (err error) {
		fd, err = unix.Openat(dir, name, flags, perm)
		return err
	})
	switch {
	case err != nil:
		return err
	case o.creates:
		return o.giveNew(fd, o.flags&unix.O_CLOEXEC != 0)
	case o.flags&writeIntent != 0:
		return o.give(fd, o.flags&unix.O_CLOEXEC != 0)
	}
	return o.giveToRead(fd, o.flags&unix.O_CLOEXEC != 0)
}

// createUnnamed makes a file with no name in a directory (O_TMPFILE).
func (o *openCall) createUnnamed() error {
	dir, path, found, err := o.b.openGiven(o.path.full)
	if !found {
		if dir, err = o.openPath(o.path, unix.O_PATH|unix.O_DIRECTORY|o.flags&unix.O_NOFOLLOW); err == nil {
			if path, err = folderPath(dir); err != nil {
				unix.Close(dir)
			}
		}
	}
	switch {
	case err != nil && o.askAboutHidden(plan.OpCreate, o.path.full):
		return errAnswered
	case err != nil && (o.path.full == "" || o.b.wouldGuard(o.path.full+"/x")):
		return err
	case err != nil:
		return errGoOn
	}
	defer unix.Close(dir)
	if !o.b.guards(path) {
		return o.leaveToKernel(plan.OpCreate, path)
	}
	if err := o.denyUnlessAllowed(plan.OpCreate, path); err != nil {
		return err
	}
	return o.openAndGive(dir, ".", o.kernelFlags())
}

// read opens a file for reading.
//
// Where a pattern hides files, the broker opens everything that is read, and never lets the
// kernel run an open for reading: nothing but the broker would keep a name that is changed
// meanwhile from meaning a hidden file.
func (o *openCall) read() error {
	p := o.path
	p.full = o.numbered(p.full)
	at, k, last, err := o.follow(p, func(at *place) bool { return !o.follows(at) }, nil)
	switch {
	case errors.Is(err, errUnnamed):
		return o.readFolder(last)
	case errors.Is(err, errNoPath):
		return o.openWithoutPath(last.full)
	case err == nil && k != missing:
		defer at.close()
		return o.readAt(at, k)
	case err == nil:
		at.close()
		err = unix.ENOENT
	}
	if o.askAboutHidden(plan.OpRead, last.full) {
		return errAnswered
	}
	o.noteAttempt(plan.OpRead, last.full)
	return err
}

// readFolder opens a directory that is named "/", "." or "..". What was found is judged by its
// real path, and then opened.
func (o *openCall) readFolder(p pathname) error {
	fd, err := o.openPath(p, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	real, err := folderPath(fd)
	if err != nil {
		return err
	}
	if v, hidden := o.b.hidesByPattern(real); hidden {
		return o.deny(plan.OpRead, real, v)
	}
	if pathx.Within("/proc", real) && !o.mayReadProc(real, unix.S_IFDIR) {
		return unix.EACCES
	}
	return o.openAndGive(unix.AT_FDCWD, selfFD(fd), o.kernelFlags()&^(unix.O_CREAT|unix.O_NOFOLLOW))
}

func (o *openCall) readAt(at *place, k kind) error {
	path := at.path()
	v := o.b.config.Judge().Path(path)
	hidden := v.Access == policy.Hidden
	if hidden && k == unix.S_IFDIR {
		v, hidden = o.b.hidesByPattern(path)
		if !hidden && o.b.config.Records == policy.RecordThorough {
			o.noteAttempt(plan.OpRead, path) // a mask, which is empty
		}
	}
	switch {
	case hidden:
		return o.deny(plan.OpRead, path, v)
	case o.b.isProc(at) && !o.mayReadProc(path, k):
		return unix.EACCES
	case at.host && isDevice(k):
		return unix.EACCES
	case path == "/dev/tty":
		return o.reopenTerminal()
	case at.slash && k != unix.S_IFDIR:
		return unix.ENOTDIR
	case k == unix.S_IFIFO:
		return o.openFIFO(at)
	}
	return o.openAndGive(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW)
}

// openWithoutPath opens a descriptor of the process that has no path, by its name in /proc:
// a pipe, or a file without a name. It is in no guarded directory, so the kernel may open it
// for writing. To read it, the descriptor is taken from the process once, and that one is judged
// and opened: the process can put another one in its place at any time. The file is not
// emptied: the process may have it for reading only.
func (o *openCall) openWithoutPath(text string) error {
	if o.flags&(writeIntent|unix.O_PATH) != 0 && !o.onlyReads() {
		return errGoOn
	}
	number, ok := ownDescriptor(text)
	if !ok {
		return errNoPath
	}
	fd, err := o.descriptor(number)
	if err == unix.EBADF {
		err = unix.ENOENT
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := checkNameless(fd); err != nil {
		return err
	}
	return o.reopen(fd)
}

// checkNameless returns nil for a descriptor that may be opened anew. A file with a name is
// opened by that, because it is the name that is judged; the name of a file deep in a tree may
// be too long for the kernel to report. A descriptor with O_PATH was made without any right to
// read.
func checkNameless(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		return unix.EACCES
	}
	switch kind(st.Mode & unix.S_IFMT) {
	case unix.S_IFIFO, unix.S_IFREG, unix.S_IFDIR:
	default:
		return unix.ENXIO
	}
	switch {
	case flags&unix.O_PATH != 0 || fs.Type == unix.PROC_SUPER_MAGIC:
		return unix.EACCES
	case st.Nlink != 0 && fs.Type != unix.PIPEFS_MAGIC:
		return unix.ENAMETOOLONG
	}
	return nil
}

// reopen opens for reading what a descriptor of the broker is, and gives that to the process.
func (o *openCall) reopen(fd int) error {
	o.flags &^= writeIntent
	var opened int
	err := o.as(func() (err error) {
		opened, err = unix.Open(selfFD(fd), o.kernelFlags()&^unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return err
	}
	if o.flags&unix.O_NONBLOCK == 0 {
		if _, err = unix.FcntlInt(uintptr(opened), unix.F_SETFL, int(o.flags)&^unix.O_NONBLOCK); err != nil {
			unix.Close(opened)
			return err
		}
	}
	return o.give(opened, o.flags&unix.O_CLOEXEC != 0)
}

// reopenTerminal opens the terminal of the process's session, which /dev/tty does not mean to
// the broker. It is one of the first three descriptors, or there is none.
func (o *openCall) reopenTerminal() error {
	for number := range int32(3) {
		fd, err := o.descriptor(number)
		if err != nil {
			continue
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && o.isTerminal(st.Rdev) {
			return o.reopen(fd)
		}
	}
	return unix.ENXIO
}

// isTerminal reports whether a device is the terminal of the process's session.
func (o *openCall) isTerminal(device uint64) bool {
	b, err := os.ReadFile(o.proc("stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), " ")
	fields := strings.Fields(rest) // state ppid pgrp session tty
	if len(fields) < 5 {
		return false
	}
	tty, err := strconv.ParseUint(fields[4], 10, 64)
	return err == nil && tty != 0 && tty == device
}

// The broker has more rights than the processes that it reads for, and is in other
// namespaces: of /proc it opens only what does not depend on the process that opens it.
var (
	// openEntries are of any process.
	openEntries = []string{
		"stat", "status", "statm", "cmdline", "comm", "cgroup", "limits", "loginuid", "mountinfo", "mounts", "oom_adj", "oom_score",
		"oom_score_adj", "sched", "schedstat", "sessionid", "wchan", "children", "cpuset", "task", "net",
	}
	// ownEntries are further ones of the process itself.
	ownEntries = []string{
		"auxv", "environ", "exe", "fd", "fdinfo", "gid_map", "io", "maps", "map_files", "mem", "mountstats", "numa_maps", "personality",
		"projid_map", "setgroups", "smaps", "smaps_rollup", "timers", "timerslack_ns", "uid_map",
	}
	// openFiles and openFolders are about no process.
	openFiles = []string{
		"buddyinfo", "cgroups", "cmdline", "cpuinfo", "crypto", "devices", "diskstats", "filesystems", "interrupts", "loadavg", "meminfo",
		"misc", "modules", "mounts", "net", "partitions", "pressure", "softirqs", "stat", "swaps", "uptime", "version", "vmstat",
	}
	openFolders = []string{"/proc/pressure", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs", "/proc/irq"}
)

// maxDevices bounds how many file systems are remembered.
const maxDevices = 4096

// isProc reports whether a file is in a procfs, wherever that is mounted. Files on a disk are
// not.
func (b *Broker) isProc(at *place) bool {
	if pathx.Within("/proc", at.path()) {
		return true
	}
	if unix.Major(at.device) != 0 {
		return false
	}
	if is, ok := b.procs[at.device]; ok {
		return is
	}
	fd, err := unix.Openat(at.dir, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return true
	}
	if b.procs == nil || len(b.procs) >= maxDevices {
		b.procs = map[uint64]bool{}
	}
	b.procs[at.device] = fs.Type == unix.PROC_SUPER_MAGIC
	return b.procs[at.device]
}

// mayReadProc reports whether the process could read an entry of /proc itself. A procfs that is
// mounted elsewhere is of another pid namespace, and is not read. The names in a directory that
// is about no process, or about this one, are the same for everybody.
func (o *openCall) mayReadProc(name string, k kind) bool {
	if name == "/proc" {
		return true
	}
	if !pathx.Within("/proc", name) {
		return false
	}
	owner, rest, _ := strings.Cut(strings.TrimPrefix(name, "/proc/"), "/")
	if _, err := strconv.Atoi(owner); err != nil {
		within := func(dir string) bool { return pathx.Within(dir, name) }
		return k == unix.S_IFDIR || rest == "" && slices.Contains(openFiles, owner) || slices.ContainsFunc(openFolders, within)
	}
	if rest == "" || slices.Contains(openEntries, path.Base(name)) || pathx.Within("net", rest) {
		return true
	}
	inOwn := func(entry string) bool {
		return slices.Contains(strings.Split(rest, "/"), entry)
	}
	return owner == o.numberInside("\nNStgid:") && (k == unix.S_IFDIR || slices.ContainsFunc(ownEntries, inOwn))
}

const (
	// maxWaiting bounds the opens of FIFOs that wait, each of which has a thread. A Go program
	// ends where it has ten thousand of those.
	maxWaiting = 256
	// releaseTries is how often the end of a broker tries to end a wait.
	releaseTries = 40
)

// openFIFO opens a FIFO, and answers when it is open. That waits for the other end, which
// another process may be about to open through this very broker: so a goroutine waits.
func (o *openCall) openFIFO(at *place) error {
	fifo, err := unix.Openat(at.dir, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fifo, &st)
	switch {
	case err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO:
		err = unix.EACCES // replaced since it was judged
	case o.domain != nil:
		err = unix.EACCES // the one thread of that domain cannot wait
	case o.b.opening.Add(1) > maxWaiting:
		o.b.opening.Add(-1)
		err = unix.EMFILE
	}
	if err != nil {
		unix.Close(fifo)
		return err
	}
	flags := o.kernelFlags() &^ (unix.O_NOFOLLOW | unix.O_CREAT | unix.O_EXCL)
	opened := make(chan struct{})
	go func() {
		defer o.b.opening.Add(-1)
		defer close(opened)
		fd, err := unix.Open(selfFD(fifo), flags, 0)
		given := false
		o.b.answerLate(func() {
			if given = true; err == nil {
				err = o.give(fd, o.flags&unix.O_CLOEXEC != 0)
			}
			o.answer(err)
		})
		if !given && err == nil {
			unix.Close(fd)
		}
	}()
	o.b.releasing.Go(func() {
		if o.releaseFIFO(fifo, opened) {
			unix.Close(fifo)
		}
	})
	return errAnswered
}

// releaseFIFO ends the wait for a process that is gone, by opening both ends. It returns false
// where that cannot be done: then a thread goes on waiting, and the broker does not wait for it.
func (o *openCall) releaseFIFO(fifo int, opened <-chan struct{}) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	ended := o.b.done
	for tries := 0; tries < releaseTries; {
		select {
		case <-opened:
			return true
		case <-ended:
			ended = nil // from now on at each tick
		case <-tick.C:
			if ended != nil && o.valid() {
				continue
			}
		}
		if fd, err := openBothEnds(fifo); err == nil {
			<-opened
			unix.Close(fd)
			return true
		}
		if ended == nil {
			tries++
		}
	}
	return false
}

// openBothEnds opens a FIFO for reading and writing. A command that takes its mode away
// meanwhile would make the broker wait for ever: its owner may give it back.
func openBothEnds(fifo int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(selfFD(fifo), flags, 0)
	if err != unix.EACCES {
		return fd, err
	}
	var info unix.Stat_t
	if err := unix.Fstat(fifo, &info); err != nil {
		return -1, err
	}
	if err := unix.Chmod(selfFD(fifo), info.Mode&0o7777|0o600); err != nil {
		return -1, err
	}
	fd, err = unix.Open(selfFD(fifo), flags, 0)
	_ = unix.Chmod(selfFD(fifo), info.Mode&0o7777)
	return fd, err
}
