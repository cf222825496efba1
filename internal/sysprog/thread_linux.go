//go:build amd64 || arm64

package sysprog

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/umask"
)

// A maker is what a process inherits from the thread that makes it, as far as threads of one
// process may differ. In most callers all threads are alike. A caller that locks a goroutine
// to its thread may give that thread its own umask, network or user, or confine it.
type maker struct {
	tid int // to compare its umask
	own inherited
}

type inherited struct {
	users, groups [3]int
	capabilities  [2]unix.CapUserData
	priority      int
	// confined is no_new_privs, which seccomp and Landlock require for everybody but root.
	confined int
	network  uint64
}

// ownThread returns the properties of the calling thread.
func ownThread() (m maker) {
	m.tid = unix.Gettid()
	o := &m.own
	o.users[0], o.users[1], o.users[2] = unix.Getresuid()
	o.groups[0], o.groups[1], o.groups[2] = unix.Getresgid()
	// A property that cannot be read is the same for all threads.
	_ = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &o.capabilities[0])
	o.priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	o.confined, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) == nil {
		o.network = st.Ino
	}
	return m
}

// alike reports whether it makes no difference which of the two threads makes a process.
func (m maker) alike(n maker) bool { return m.own == n.own && sameUmask(m.tid, n.tid) }

// sameUmask reports whether two threads share their umask, or have the same one.
func sameUmask(a, b int) bool {
	if umask.Shared(a, b) {
		return true
	}
	mask := umask.Of(threadStatus(a))
	return mask >= 0 && mask == umask.Of(threadStatus(b))
}

func threadStatus(tid int) string { return "/proc/self/task/" + strconv.Itoa(tid) + "/status" }
