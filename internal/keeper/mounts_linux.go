package keeper

import "golang.org/x/sys/unix"

// Mounts notices changes of this process's mounts.
type Mounts struct{ fd int }

// WatchMounts begins to watch.
func WatchMounts() *Mounts {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return &Mounts{fd}
}

// Changed reports whether a file system was mounted or unmounted since the last call, or whether that is not known.
func (m *Mounts) Changed() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLPRI}}, 0)
	return m.fd < 0 || err != nil || n != 0
}
