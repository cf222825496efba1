package supervise

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The processes of a tagged launch share their pid namespace with those of other commands.
// They are recognized by their UTS namespace, the tag: the program made one for the command,
// every process that the command starts inherits it, and leaving it needs a capability that
// none of them has.

// tagOf returns the inode of a process's UTS namespace, or 0 for a process that has ended.
// told is false if the kernel does not show it: an ordinary user cannot see it for a process
// whose program file is executable but not readable.
func tagOf(pid int) (tag uint64, told bool) {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/uts", pid))
	if err != nil {
		return 0, !errors.Is(err, fs.ErrPermission)
	}
	return info.Sys().(*syscall.Stat_t).Ino, true
}

// orphans returns the processes that commands left to the sandbox's first process.
func (p *parked) orphans() (pids []int) {
	list, err := io.ReadAll(io.NewSectionReader(p.children, 0, maxChildren))
	if err != nil {
		return nil // the process has ended, and all orphans with it
	}
	return parsePIDs(list)
}

// maxChildren limits how many bytes of the list are read at once. Processes beyond that appear
// in it when the others have ended.
const maxChildren = 1 << 20

// tagged returns the processes of the run: descendants of the command, and of orphans that it
// has left. A process whose tag is not visible counts as having that of its parent. An orphan
// whose tag is not visible may belong to any command: it counts as one of this run, so that no
// orphan outlives all commands.
func (c *child) tagged() (pids []int) {
	roots := c.parked.orphans()
	if !c.isReaped() {
		roots = append(roots, c.proc.Pid)
	}
	tags := map[int]uint64{0: c.tag}
	walk(roots, func(pid, parent, _ int) {
		tag, told := tagOf(pid)
		if !told {
			tag = tags[parent]
		}
		if tags[pid] = tag; tag == c.tag {
			pids = append(pids, pid)
		}
	})
	return pids
}

func (c *child) isReaped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped
}

// killTagged kills the processes of the run until none is left. If they fork faster than they
// are killed for launcherGrace, the sandbox's first process is killed: the kernel then kills
// everything in the sandbox, and the next command gets a new one.
func (c *child) killTagged() {
	c.killing.Lock()
	defer c.killing.Unlock()
	for end := time.Now().Add(launcherGrace); time.Now().Before(end); time.Sleep(time.Millisecond) {
		pids := c.tagged()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			c.killOne(pid)
		}
	}
	_ = c.parked.init.Kill()
}

// killOne kills a process if it still has the run's tag: the pid could belong to another
// process by now. A process whose tag is not visible is killed when it is an orphan, which it
// becomes when its parents have ended.
func (c *child) killOne(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	tag, told := tagOf(pid)
	if tag == c.tag || !told && slices.Contains(c.parked.orphans(), pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// endTagged ends the processes that the command left behind, after it is reaped itself.
func (c *child) endTagged() {
	if len(c.parked.orphans()) > 0 {
		c.killTagged()
	}
}

// Owns reports whether a process, by its pid on the host, belongs to this run: it is in the
// run's pid namespace, or has the tag of a command that shares its pid namespace.
func (p *Process) Owns(pid int) bool {
	c := p.child
	if c.tag != 0 {
		return namespaceOf(pid, "uts") == c.tag
	}
	own := namespaceOf(c.proc.Pid, "pid")
	return own != 0 && namespaceOf(pid, "pid") == own
}

// namespaceOf returns the inode of a process's namespace, or 0.
func namespaceOf(pid int, name string) uint64 {
	var s unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/"+name, &s) != nil {
		return 0
	}
	return s.Ino
}
