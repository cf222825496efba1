// Package umask tells the mask for the permissions of new files that a thread has,
// without changing it: the system call that returns it also sets it. Threads of one
// process usually share it, and need not.
package umask

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Room is enough of a status file for Parse: the mask is in its second line, after the
// thread's name, which has at most 15 bytes, each of which may be escaped.
const Room = 128

// Parse is the mask that the status file of a thread in /proc tells, or -1 if it tells
// none, as before Linux 4.7. The beginning of the file is enough.
func Parse(status []byte) int {
	_, line, _ := bytes.Cut(status, []byte("\nUmask:\t"))
	digits, _, whole := bytes.Cut(line, []byte("\n"))
	// No mask has more than three digits that count; a longer text is none.
	if !whole || len(digits) == 0 || len(digits) > 5 {
		return -1
	}
	mask := 0
	for _, d := range digits {
		if d < '0' || d > '7' {
			return -1
		}
		mask = mask<<3 | int(d-'0')
	}
	return mask
}

// Read is Parse for the open status file of a thread. It fails when the thread has
// ended, whoever has its number then.
func Read(status int) int {
	var buf [Room]byte
	n, err := unix.Pread(status, buf[:], 0)
	if err != nil {
		return -1
	}
	return Parse(buf[:n])
}

// Of is Read for the status file of a name.
func Of(name string) int {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	return Read(fd)
}

// Shared reports whether two threads are known to share what they have of the file
// system, the mask among it. A filter around us may not let it be asked.
func Shared(a, b int) bool {
	const kcmpFS = 3
	if a == b {
		return true
	}
	order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFS, 0, 0, 0)
	return errno == 0 && order == 0
}
