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

// The processes of a tagged launch share their pid namespace with those of other
// commands. They are known by their UTS namespace: the program made one for the
// command, everything it starts inherits it, and to leave it would take a
// capability that none of them has.

// tagOf is the inode of a process's UTS namespace; 0 for a process that is gone
// or has ended. It is not told to an ordinary user of a process that executes a
// program which can be executed and not read: the kernel then keeps everything
// about the process to who could read it.
func tagOf(pid int) (tag uint64, told bool) {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/uts", pid))
	if err != nil {
		return 0, !errors.Is(err, fs.ErrPermission)
	}
	return info.Sys().(*syscall.Stat_t).Ino, true
}

// orphans are the processes that commands left to the sandbox's first process.
func (p *parked) orphans() (pids []int) {
	list, err := io.ReadAll(io.NewSectionReader(p.children, 0, maxChildren))
	if err != nil {
		return nil // the process is gone, and everything with it
	}
	return parsePIDs(list)
}

// maxChildren bounds the bytes of the list that are read at once; those that it
// leaves out come into it when the others are gone.
const maxChildren = 1 << 20

// tagged are the processes of the run: those below the command, and those below
// orphans that it has left. One whose tag is not told has that of its parent. An orphan
// among them may be anybody's: it is taken for ours, so that none outlives all commands.
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

// killTagged kills the processes of the run until none is left. Those that can
// outrun that for so long take the whole sandbox with them: the kernel then
// kills everything in it, and the next command gets a new one.
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

// killOne kills a process if it still carries the tag. By its number alone it
// could be another one by now. One whose tag is not told is killed when it is an
// orphan, which it becomes with the end of its parents.
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

// endTagged ends what the command left behind, when it is reaped itself.
func (c *child) endTagged() {
	if len(c.parked.orphans()) > 0 {
		c.killTagged()
	}
}

// Owns reports whether a process, by the number that we see, is one of this run:
// by the pid namespace that it has of its own, or by the mark of a command that
// shares one.
func (p *Process) Owns(pid int) bool {
	c := p.child
	if c.tag != 0 {
		return namespaceOf(pid, "uts") == c.tag
	}
	own := namespaceOf(c.proc.Pid, "pid")
	return own != 0 && namespaceOf(pid, "pid") == own
}

// namespaceOf is the inode of a process's namespace, or 0.
func namespaceOf(pid int, name string) uint64 {
	var s unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/"+name, &s) != nil {
		return 0
	}
	return s.Ino
}
