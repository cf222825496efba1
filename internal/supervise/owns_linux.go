package supervise

import (
	"strconv"

	"golang.org/x/sys/unix"
)

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
