//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Where a pattern hides files, the broker opens everything that is read, and
// never lets the kernel go on with an open for reading: nothing but the broker
// would keep a name that was changed meanwhile from meaning a hidden file.

// read opens a file for reading.
func (o *openCall) read() {
	w := o.way
	for range maxLinks + 1 {
		w.whole = o.numbered(w.whole)
		at, err := o.locate(w)
		if err == nil {
			defer at.close() // the way on may begin there
		}
		next, done := o.readStep(w, at, err)
		if done {
			return
		}
		w = next
	}
	o.fail(unix.ELOOP)
}

// readStep opens what is at the place, unless it is a link: then it returns where that
// leads. err is why no place was found.
func (o *openCall) readStep(w way, at *place, err error) (next way, done bool) {
	if errors.Is(err, errUnnamed) {
		o.readFolder(w)
		return way{}, true
	}
	var k kind
	if err == nil {
		if k, err = at.kind(); err == nil && k == missing {
			err = unix.ENOENT
		}
	}
	if err != nil {
		if !o.asksUnseen(plan.OpRead, w.whole) {
			o.suspect(plan.OpRead, w.whole)
			o.failWith(err)
		}
		return way{}, true
	}
	if k != unix.S_IFLNK || !o.follows(at) {
		o.readAt(at, k)
		return way{}, true
	}
	text, err := linkText(at.dir, at.name)
	if err == nil {
		next, err = o.behind(at)
	}
	if err != nil {
		o.failWith(err)
		return way{}, true
	}
	if fd, ok := ownDescriptor(text); ok && next.whole == text { // it has no path
		o.readOwn(fd)
		return way{}, true
	}
	return next, false
}

// readFolder opens a folder that is named "/", "." or "..". What was found is judged, by
// its real path, and then opened.
func (o *openCall) readFolder(w way) {
	held, err := o.hold(w, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		o.failWith(err)
		return
	}
	defer unix.Close(held)
	real, err := folderPath(held)
	if err != nil {
		o.failWith(err)
		return
	}
	v, hidden := o.b.hidesFolder(real)
	switch {
	case hidden:
		o.refuse(plan.OpRead, real, v)
	case pathx.Within("/proc", real) && !o.mayReadProc(real, unix.S_IFDIR):
		o.fail(unix.EACCES)
	default:
		fd, err := o.opens(func() (int, error) {
			return unix.Open(selfFD(held), o.kernelFlags()&^(unix.O_CREAT|unix.O_NOFOLLOW), 0)
		})
		o.giveOpened(fd, err)
	}
}

// hidesFolder reports whether a pattern keeps a folder from being listed, and its verdict.
// What a line of the plan hides is a mask, with nothing in it but what other lines show.
func (b *Broker) hidesFolder(path string) (plan.Verdict, bool) {
	v := b.config.Judge().Path(path)
	if v.Access != policy.Hidden {
		return v, false
	}
	return v, b.config.Plan == nil || b.config.Plan.Access(path) != policy.Hidden
}

func (o *openCall) readAt(at *place, k kind) {
	path := at.path()
	v := o.b.config.Judge().Path(path)
	hidden := v.Access == policy.Hidden
	if hidden && k == unix.S_IFDIR {
		v, hidden = o.b.hidesFolder(path)
		if !hidden && o.b.config.Records == policy.RecordThorough {
			o.suspect(plan.OpRead, path) // a mask, which is empty
		}
	}
	if hidden {
		o.refuse(plan.OpRead, path, v)
		return
	}
	switch {
	case o.b.isProc(at) && !o.mayReadProc(path, k):
		o.fail(unix.EACCES)
	case at.host && (k == unix.S_IFCHR || k == unix.S_IFBLK):
		o.fail(unix.EACCES) // no device of the host's
	case path == "/dev/tty":
		o.readTerminal()
	case at.slash && k != unix.S_IFDIR:
		o.fail(unix.ENOTDIR)
	case k == unix.S_IFIFO:
		o.openFIFO(at)
	default:
		fd, err := o.opens(func() (int, error) { return unix.Openat(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW, 0) })
		o.giveOpened(fd, err)
	}
}

// readOwn opens anew what a descriptor of the process is that has no path: a pipe, or a
// file without a name. The descriptor is taken from the process once, and that one is
// judged and opened: the process can put another one in its place at any time. The file is
// not emptied: the process may have it for reading only.
func (o *openCall) readOwn(fd int32) {
	held, err := o.descriptor(fd)
	if err == unix.EBADF {
		err = unix.ENOENT
	}
	if err != nil {
		o.failWith(err)
		return
	}
	defer unix.Close(held)
	if err := nameless(held); err != nil {
		o.failWith(err)
		return
	}
	o.reopen(held)
}

// nameless returns nil for what readOwn may open. What has a name is opened by that, for
// it is the name that is judged; the name of a file deep in a tree may be too long for the
// kernel to tell. A descriptor with O_PATH was made without any right to read.
func nameless(held int) error {
	flags, err := unix.FcntlInt(uintptr(held), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(held, &st), unix.Fstatfs(held, &fs)); err != nil {
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

// reopen opens what a descriptor of the broker is, and gives that to the process.
func (o *openCall) reopen(held int) {
	o.flags &^= writeIntent
	opened, err := o.opens(func() (int, error) {
		return unix.Open(selfFD(held), o.kernelFlags()&^unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err == nil && o.flags&unix.O_NONBLOCK == 0 {
		_, err = unix.FcntlInt(uintptr(opened), unix.F_SETFL, int(o.flags)&^unix.O_NONBLOCK)
	}
	o.givePipe(opened, err)
}

// readTerminal opens the terminal of the process's session, which /dev/tty would
// not mean in the broker. It is one of the first descriptors, or there is none.
func (o *openCall) readTerminal() {
	for fd := range int32(3) {
		held, err := o.descriptor(fd)
		if err != nil {
			continue
		}
		defer unix.Close(held)
		var st unix.Stat_t
		if unix.Fstat(held, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && o.isTerminal(st.Rdev) {
			o.reopen(held)
			return
		}
	}
	o.fail(unix.ENXIO)
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

// numbered replaces the names for "my own" in /proc, which mean nothing to the
// broker, by the number that the process has inside.
func (o *openCall) numbered(name string) string {
	for prefix, key := range map[string]string{"/proc/self": "\nNStgid:", "/proc/thread-self": "\nNSpid:"} {
		if !pathx.Within(prefix, name) {
			continue
		}
		number := o.numberInside(key)
		if prefix == "/proc/thread-self" {
			number = o.numberInside("\nNStgid:") + "/task/" + number
		}
		return "/proc/" + number + name[len(prefix):]
	}
	return name
}

// numberInside is the number that the innermost pid namespace gives the process.
func (o *openCall) numberInside(key string) string {
	b, _ := os.ReadFile(o.proc("status"))
	_, rest, _ := strings.Cut(string(b), key)
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "self"
	}
	return fields[len(fields)-1]
}

// The broker has more rights than those for whom it reads, and it is in other
// namespaces: it opens only what does not depend on who opens it.
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

// isProc reports whether a file is procfs's, wherever that is mounted. Files of a disk
// need no look.
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

// mayReadProc reports whether the process could read an entry of /proc itself. A procfs
// that is mounted elsewhere is of another pid namespace, and is not read.
// The names in a folder that is about no process, or about this one, depend on nobody.
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
