package supervise

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/umask"
)

// inherited is what a process gets from the one that forks it and keeps, and what
// the caller may change between two commands. An init that was made before such
// a change is not used after it.
type inherited struct {
	umask    int // -1 if it cannot be told
	cgroup   string
	priority int
	limits   [rlimits]unix.Rlimit
}

const rlimits = 16 // RLIM_NLIMITS

func whatIsInherited() (in inherited) {
	in.umask, in.cgroup = ownUmask.get(), cgroups()
	in.priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	for i := range in.limits {
		_ = unix.Getrlimit(i, &in.limits[i]) // they all exist
	}
	return in
}

// A umaskReader finds out the mask for new files of the thread that asks. Nothing
// but /proc tells it without changing it. To open the file there takes longer than to
// read it, so the one of a thread is kept open, and read for all threads that share
// their mask with it: most do, and those of notify.Broker do not.
type umaskReader struct {
	mu sync.Mutex
	// tid is the thread that status is about, -1 for none. When that thread has
	// ended, status cannot be read any more, whoever has the number then.
	tid, status int
}

var ownUmask = umaskReader{tid: -1, status: -1}

func (r *umaskReader) get() int {
	tid := unix.Gettid()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tid >= 0 && umask.Shared(r.tid, tid) {
		if mask := umask.Read(r.status); mask >= 0 {
			return mask
		}
	}
	r.keep(tid)
	return umask.Read(r.status)
}

// keep opens the status of another thread.
func (r *umaskReader) keep(tid int) {
	if r.status >= 0 {
		unix.Close(r.status)
	}
	fd, err := unix.Open("/proc/self/task/"+strconv.Itoa(tid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.tid, r.status = -1, -1
		return
	}
	r.tid, r.status = tid, fd
}

// cgroupFile lists the control groups of this process. It is kept open, or -1 if
// there are none.
var cgroupFile = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/self/cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

// cgroups returns the list of groups, up to a length.
func cgroups() string {
	var buf [1024]byte
	n, err := unix.Pread(cgroupFile(), buf[:], 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
