package supervise

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/umask"
)

// inherited are the properties that a forked process takes over from its parent and that the
// caller may change between two commands. An init made before such a change is not used after
// it.
type inherited struct {
	umask    int // -1 if it is not known
	cgroup   string
	priority int
	limits   [rlimits]unix.Rlimit
}

const rlimits = 16 // RLIM_NLIMITS

func whatIsInherited() (in inherited) {
	in.umask, in.cgroup = ownUmask.get(), cgroups()
	in.priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	for i := range in.limits {
		_ = unix.Getrlimit(i, &in.limits[i]) // all of them exist
	}
	return in
}

// A umaskReader reads the umask of the calling thread. Only /proc shows it without changing
// it. Opening the file takes longer than reading it, so the file of one thread stays open and
// is used for all threads that share their umask with it. Most threads do; those of
// notify.Broker do not.
type umaskReader struct {
	mu sync.Mutex
	// tid is the thread that status belongs to, -1 for none. After that thread has ended,
	// status cannot be read any more, even if another thread gets the same tid.
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

// keep opens the status file of a thread, in place of the one before.
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

// cgroupFile is an open descriptor of the file that lists this process's control groups, or -1
// if there is none.
var cgroupFile = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/self/cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

// cgroups returns the list of control groups, up to 1024 bytes.
func cgroups() string {
	var buf [1024]byte
	n, err := unix.Pread(cgroupFile(), buf[:], 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
