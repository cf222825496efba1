package cli

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchParent returns a function that waits until the parent has ended, and reports
// whether it has; stop makes it return. A descriptor of the process is waited for: the
// signal that the kernel can send instead is for the end of the thread that started
// this process, and not for that of the whole program.
func watchParent() (ended func() bool, stop func(), err error) {
	pid := os.Getppid()
	if pid == 0 {
		return nil, nil, errors.New("the program that started cloche is in another pid namespace and cannot be watched; leave the option out")
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return func() bool { return true }, func() {}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("process %d cannot be watched: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "parent")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	gone := os.Getppid() != pid // it ended before it was opened, and the number may be another's
	ended = func() bool {
		return gone || conn.Read(hasEnded) == nil
	}
	return ended, func() { f.Close() }, nil
}

// hasEnded reports whether a descriptor of a process says that it has ended.
func hasEnded(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
