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
	name := o.path
	for range maxLinks {
		next, done := o.readStep(name)
		if done {
			return
		}
		if own, err := o.own(next); err == nil {
			next = own
		} else if fd, ok := ownDescriptor(next); ok {
			o.readOwn(fd)
			return
		}
		name = next
	}
	o.fail(unix.ELOOP)
}

// readStep opens what a name means, unless it is a link: then it returns where
// that leads.
func (o *openCall) readStep(name string) (next string, done bool) {
	at, err := o.b.locate(o.numbered(name))
	if errors.Is(err, errUnnamed) {
		o.readFolder(name)
		return "", true
	}
	if err != nil {
		if !o.asksUnseen(plan.OpRead, name) {
			o.suspect(plan.OpRead, name)
			o.failWith(err)
		}
		return "", true
	}
	defer at.close()
	k, err := at.kind()
	if (err != nil || k == missing) && o.asksUnseen(plan.OpRead, name) {
		return "", true
	}
	switch {
	case err != nil:
		o.suspect(plan.OpRead, name)
		o.failWith(err)
	case k == missing:
		o.suspect(plan.OpRead, name)
		o.fail(unix.ENOENT)
	case k == unix.S_IFLNK && o.follows():
		next, err = at.target()
		if err == nil {
			return next, false
		}
		o.failWith(err)
	default:
		o.readAt(at, k)
	}
	return "", true
}

// readFolder opens a folder that is named "/", "." or "..".
func (o *openCall) readFolder(name string) {
	fd, err := o.opens(func() (int, error) { return o.b.inside(name, o.flags&^unix.O_CREAT) })
	o.giveOpened(fd, err)
}

func (o *openCall) readAt(at *place, k kind) {
	path := at.path()
	if v := o.b.config.Judge().Path(path); v.Access == policy.Hidden && k != unix.S_IFDIR {
		o.refuse(plan.OpRead, path, v)
		return
	}
	if k != unix.S_IFDIR && o.refusesLate(path) {
		return
	}
	switch {
	case pathx.Within("/proc", path) && !o.mayReadProc(path):
		o.fail(unix.EACCES)
	case at.host && (k == unix.S_IFCHR || k == unix.S_IFBLK):
		o.fail(unix.EACCES) // no device of the host's
	case path == "/dev/tty":
		o.readTerminal()
	case k == unix.S_IFIFO:
		o.openFIFO(at)
	case at.slash && k != unix.S_IFDIR:
		o.fail(unix.ENOTDIR)
	default:
		fd, err := o.opens(func() (int, error) { return unix.Openat(at.dir, at.name, o.kernelFlags()|unix.O_NOFOLLOW, 0) })
		o.giveOpened(fd, err)
	}
}

// readOwn opens anew what a descriptor of the process means that has no path: a
// pipe, or a file without a name. It is not emptied: the process may have it for
// reading only.
func (o *openCall) readOwn(fd int32) {
	o.flags &^= writeIntent
	opened, err := unix.Open(o.descriptorLink(fd), o.kernelFlags()&^unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == nil && o.flags&unix.O_NONBLOCK == 0 {
		_, err = unix.FcntlInt(uintptr(opened), unix.F_SETFL, int(o.flags)&^unix.O_NONBLOCK)
	}
	o.giveOpened(opened, err)
}

// readTerminal opens the terminal of the process's session, which /dev/tty would
// not mean in the broker. It is one of the first descriptors, or there is none.
func (o *openCall) readTerminal() {
	for fd := range int32(3) {
		var st unix.Stat_t
		if unix.Stat(o.descriptorLink(fd), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && o.isTerminal(st.Rdev) {
			o.readOwn(fd)
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

// mayReadProc reports whether the process could read an entry of /proc itself.
func (o *openCall) mayReadProc(name string) bool {
	owner, rest, _ := strings.Cut(strings.TrimPrefix(name, "/proc/"), "/")
	if _, err := strconv.Atoi(owner); err != nil {
		within := func(dir string) bool { return pathx.Within(dir, name) }
		return rest == "" && slices.Contains(openFiles, owner) || slices.ContainsFunc(openFolders, within)
	}
	if rest == "" || slices.Contains(openEntries, path.Base(name)) || pathx.Within("net", rest) {
		return true
	}
	inOwn := func(entry string) bool {
		return slices.Contains(strings.Split(rest, "/"), entry)
	}
	return owner == o.numberInside("\nNStgid:") && slices.ContainsFunc(ownEntries, inOwn)
}
