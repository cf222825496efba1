// Package umask reads the umask of a thread without changing it: the umask system call returns
// it only while setting it. Threads of one process usually share it, but need not.
package umask

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Room is enough bytes of a status file for Parse: the umask is in the second line, after the
// thread's name, which has at most 15 bytes, each of which may be escaped.
const Room = 128

// Parse returns the umask in the status file of a thread in /proc, or -1 if it contains none,
// as before Linux 4.7. The beginning of the file is enough.
func Parse(status []byte) int {
	_, line, _ := bytes.Cut(status, []byte("\nUmask:\t"))
	digits, _, whole := bytes.Cut(line, []byte("\n"))
	// A umask has at most three significant digits; a longer text is not one.
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

// Read is Parse for the open status file of a thread. It returns -1 after the thread has
// ended, even if another thread has its number.
func Read(status int) int {
	var buf [Room]byte
	n, err := unix.Pread(status, buf[:], 0)
	if err != nil {
		return -1
	}
	return Parse(buf[:n])
}

// Of is Read for the status file with that name.
func Of(name string) int {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	return Read(fd)
}

// Shared reports whether two threads are known to share their file system state, which
// includes the umask. It returns false if a seccomp filter denies the question.
func Shared(a, b int) bool {
	if a == b {
		return true
	}
	order, errno := compare(a, b)
	return errno == 0 && order == 0
}

// Apart reports whether two threads are known not to share a mask, or one of them has ended.
// They will not begin to: whoever shares a mask has done so from its start.
func Apart(a, b int) bool {
	order, errno := compare(a, b)
	return errno == unix.ESRCH || errno == 0 && order != 0
}

func compare(a, b int) (order uintptr, errno unix.Errno) {
	const kcmpFS = 3
	order, _, errno = unix.RawSyscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFS, 0, 0, 0)
	return order, errno
}
