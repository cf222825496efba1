package network

import "golang.org/x/sys/unix"

// readable reports whether something can be read or accepted.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0
}
