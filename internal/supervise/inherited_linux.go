package supervise

import (
	"bytes"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// inherited is what a process gets from the one that forks it and keeps, and what
// the caller may change between two commands. An init that was made before such
// a change is not used after it.
type inherited struct {
	umask    string
	cgroup   string
	priority int
	limits   [rlimits]unix.Rlimit
}

const rlimits = 16 // RLIM_NLIMITS

func whatIsInherited() (in inherited) {
	in.umask, in.cgroup = ownUmask(), firstLines(ownCgroup(), 1<<10)
	in.priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	for i := range in.limits {
		_ = unix.Getrlimit(i, &in.limits[i]) // they all exist
	}
	return in
}

// ownUmask is the line that tells this thread's mask for new files, which comes
// after its name, or "". Other threads may have another one: see notify.Broker.
func ownUmask() string {
	fd, err := unix.Open("/proc/thread-self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	_, umask, _ := strings.Cut(firstLines(fd, 2), "\n")
	return umask
}

// ownCgroup is the list of this process's control groups, kept open: to open it
// costs as much as to read it.
var ownCgroup = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/self/cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1 // there are none
	}
	return fd
})

// firstLines reads the first n lines of a file, or fewer.
func firstLines(fd, n int) string {
	var buf [1024]byte
	size, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return ""
	}
	end := 0
	for range n {
		i := bytes.IndexByte(buf[end:size], '\n')
		if i < 0 {
			break
		}
		end += i + 1
	}
	return string(buf[:end])
}
