//go:build amd64 || arm64

package notify

import (
	"bytes"
	"maps"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/umask"
)

// This file is what the broker remembers of the threads that make calls. Whatever it remembers
// is true at every call, or is not used:
//
// An open directory /proc/TID is about the thread that has this number. If another thread takes
// the number over, by execve(2), it is about that one. When the thread has ended, everything in
// the directory is gone, even if a new thread has the same number since.
//
// A mask for new files (umask) belongs to a thread, or to several that share it (CLONE_FS). It is
// changed by umask(2) alone, and the filter hands over each of these calls before the kernel runs
// it. Only a new thread can begin to share a mask. So a mask that was read stays true for the thread
// until any thread calls umask. Three things have to be ruled out when it is read:
//
//   - A call of umask that was handed over may not have been run yet. It has been when its thread
//     makes another call, or has ended. Until then it counts as under way, and no mask of a
//     thread that may share it is remembered.
//   - Another thread of the process can take over the number of the first one, by execve(2), and
//     have another mask. So the mask of a first thread is remembered only if the process has no
//     other. All that it starts later begin with the same mask.
//   - The thread may have ended, and its number may be another one's. So it has to wait still
//     after its mask was read.

// A caller is what is remembered of a thread.
type caller struct {
	calls int // how many it has made, up to minCalls
	proc  int // its directory in /proc, or -1
	mask  int // its umask, or -1
}

const (
	// minCalls is the call from which on a thread is worth an open directory: most programs
	// make few.
	minCalls = 4
	// maxCallers bounds how many threads are remembered, and maxMasking the calls of umask that
	// are under way. From someMasking on those of threads that have ended are sorted out.
	maxCallers  = 64
	maxMasking  = 64
	someMasking = 8
)

// callers are the threads that the broker remembers, by their numbers. The zero value is ready.
type callers struct {
	all map[int]*caller
	// masking are the threads whose last call was umask(2): it may be under way.
	masking map[int]bool
	// lost: there were more of them than are remembered.
	lost bool
}

// note notes a call of a thread, and reports whether it is known from an earlier one.
func (a *callers) note(pid int) (known bool) {
	delete(a.masking, pid)
	c := a.all[pid]
	known = c != nil
	if !known {
		if a.all == nil || len(a.all) >= maxCallers {
			a.close()
			a.all = make(map[int]*caller, maxCallers)
		}
		c = &caller{proc: -1, mask: -1}
		a.all[pid] = c
	}
	c.calls = min(c.calls+1, minCalls)
	return known
}

func (a *callers) close() {
	for _, c := range a.all {
		c.forget()
	}
}

// forget forgets a thread that has ended.
func (c *caller) forget() {
	if c.proc >= 0 {
		unix.Close(c.proc)
	}
	*c = caller{proc: -1, mask: -1}
}

// changeMask notes that a thread is going to change its mask.
func (a *callers) changeMask(pid int) {
	for _, c := range a.all {
		c.mask = -1
	}
	if len(a.masking) >= someMasking {
		maps.DeleteFunc(a.masking, func(pid int, _ bool) bool { return umask.Apart(pid, pid) })
	}
	if len(a.masking) >= maxMasking {
		a.lost = true
		return
	}
	if a.masking == nil {
		a.masking = map[int]bool{}
	}
	a.masking[pid] = true
}

// settled reports whether no call of umask(2) that is under way changes the mask of a thread.
func (a *callers) settled(pid int) bool {
	for other := range a.masking {
		if !umask.Apart(other, pid) {
			return false
		}
	}
	return !a.lost
}

// caller is what is remembered of the thread, with its directory in /proc, or nil.
func (c *call) caller() *caller {
	t := c.b.callers.all[c.pid]
	if t == nil || t.calls < minCalls {
		return nil
	}
	if t.proc < 0 {
		fd, err := unix.Open(strings.TrimSuffix(c.proc(""), "/"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		t.proc = fd
	}
	return t
}

// readLink reads a link of the process in /proc.
func (c *call) readLink(link string) (string, error) {
	if t := c.caller(); t != nil {
		_, entry, _ := strings.Cut(strings.TrimPrefix(link, "/proc/"), "/")
		if text, err := readlinkAt(t.proc, entry); err == nil {
			c.present = true
			return text, nil
		}
		t.forget() // it may have ended
	}
	return readlink(link)
}

// umask is the mask that the process takes off the permissions of what it creates. Until the
// first call of umask(2), all processes have the mask that they began with.
func (c *call) umask() uint32 {
	if c.b.umask >= 0 && !c.b.umaskChanged {
		return uint32(c.b.umask)
	}
	t := c.caller()
	if t != nil && t.mask >= 0 {
		if c.present || t.exists() {
			return uint32(t.mask)
		}
		t.forget()
	}
	var buf [statusRoom]byte
	status := c.readStatus(buf[:])
	mask := umask.Parse(status)
	if mask < 0 {
		return 0o077
	}
	c.b.umask = mask
	if t != nil && t.proc >= 0 && c.keepsMask(status) {
		t.mask = mask
	}
	return uint32(mask)
}

// exists reports whether the thread has not ended.
func (c *caller) exists() bool {
	var st unix.Stat_t
	return unix.Fstatat(c.proc, "comm", &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// keepsMask reports whether the mask in a status file will be that of the thread until the next
// call of umask(2).
func (c *call) keepsMask(status []byte) bool {
	first := lastNumber(status, "\nTgid:") == c.pid
	if first && lastNumber(status, "\nThreads:") != 1 { // also if that was cut off
		return false
	}
	return c.b.callers.settled(c.pid) && c.valid()
}

// statusRoom is enough of a status file for all that is asked for, unless the user is in very many
// groups.
const statusRoom = 2048

// readStatus reads the beginning of the status file of the thread.
func (c *call) readStatus(buf []byte) []byte {
	fd, err := unix.Open(c.proc("status"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	end := bytes.LastIndexByte(buf[:n], '\n') + 1 // no number that was cut off
	return buf[:end]
}
