package machine

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/wellknown"
)

// workingFolder asks the kernel, because the answer has no symbolic links. $PWD may
// have some.
func workingFolder() (string, error) { return unix.Getwd() }

// collectKernel sets the facts that the kernel reports without a probe.
func collectKernel(s *host.Snapshot) {
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		s.MemoryTotal = int64(info.Totalram) * int64(info.Unit)
	}
	s.Namespaces.MaxUser = sysctl("user/max_user_namespaces")
	s.Namespaces.UnprivilegedClone = sysctl("kernel/unprivileged_userns_clone")
	s.Namespaces.AppArmorRestrict = sysctl("kernel/apparmor_restrict_unprivileged_userns")
	s.Landlock = landlock()
	s.UnixDiagnostics = knownDiagnostics()
	if text, err := slurp("/proc/net/unix"); err == nil {
		bound := parseUnixSockets(text)
		s.Sockets, s.Datagrams = bound.absolute, bound.datagrams
		if len(bound.relative) > 0 {
			s.Sockets = sortedSet(append(s.Sockets, findRelative(bound.relative, workingFolders(), s.FS)...))
		}
	}
}

// workingFolders returns the working folders of all processes that the caller may
// inspect.
func workingFolders() []string {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var folders []string
	for _, p := range procs {
		if dir, err := os.Readlink("/proc/" + p.Name() + "/cwd"); err == nil {
			folders = append(folders, dir)
		}
	}
	return sortedSet(folders)
}

// sysctl reads a number below /proc/sys, or returns -1 if there is none.
func sysctl(name string) int64 {
	text, err := slurp("/proc/sys/" + name)
	if err != nil {
		return -1
	}
	v, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return -1
	}
	return v
}

// landlock returns the ABI of Landlock. ENOSYS means a kernel without Landlock (before
// 5.13), EOPNOTSUPP a kernel in which it is compiled in but not enabled. EPERM is the
// answer of a seccomp filter around this process.
func landlock() host.Landlock {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return host.Landlock{ABI: int(abi)}
	case unix.ENOSYS:
		return host.Landlock{Reason: "the kernel has no Landlock (it needs 5.13 or later)"}
	case unix.EOPNOTSUPP:
		return host.Landlock{Reason: "Landlock is switched off at boot (add landlock to the kernel's lsm= list)"}
	default:
		return host.Landlock{Reason: "the kernel refused to tell its Landlock ABI: " + errno.Error()}
	}
}

// Nested reports whether this process is inside a sandbox of cloche that shows its
// policy. It does not use an environment variable, because anybody can set one. Instead
// the policy file has to be on a read-only mount below /run, which outside a sandbox
// only root can make.
func Nested() bool {
	var fs unix.Statfs_t
	return unix.Statfs(wellknown.PolicyFile, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

const cgroupRoot = "/sys/fs/cgroup"

// detectCgroup describes the control groups at their usual place: v2, v1, or v1 together
// with v2. A v2 group is delegated if its folder and the files cgroup.procs and
// cgroup.subtree_control in it are writable, as in cgroups(7). With v1, both the memory
// and the pids group have to be writable to be useful.
func detectCgroup(s *host.Snapshot) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	c, entries := &s.Cgroup, parseCgroups(string(text))
	switch filesystem(cgroupRoot) {
	case unix.CGROUP2_SUPER_MAGIC:
		c.Version = "v2"
		dir := groupFolder(cgroupRoot, entries, "")
		if dir == "" {
			return
		}
		if text, err := os.ReadFile(dir + "/cgroup.controllers"); err == nil {
			c.Controllers = slices.Sorted(strings.FieldsSeq(string(text)))
		}
		c.Delegated = writable(dir) && writable(dir+"/cgroup.procs") && writable(dir+"/cgroup.subtree_control")
	case unix.TMPFS_MAGIC:
		c.Version = "v1"
		if filesystem(cgroupRoot+"/unified") == unix.CGROUP2_SUPER_MAGIC {
			c.Version = "hybrid"
		}
		for _, e := range entries {
			c.Controllers = append(c.Controllers, e.controllers...)
		}
		slices.Sort(c.Controllers)
		memory, pids := groupFolder(cgroupRoot+"/memory", entries, "memory"), groupFolder(cgroupRoot+"/pids", entries, "pids")
		c.Delegated = memory != "" && pids != "" && writable(memory) && writable(pids)
	}
}

func filesystem(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Type)
}

func writable(file string) bool { return unix.Access(file, unix.W_OK) == nil }

// diagnosed says that this process got a yes before. A kernel never takes it back, and
// the question takes about 20 µs.
var diagnosed atomic.Bool

// knownDiagnostics returns unixDiagnostics, and remembers a yes.
func knownDiagnostics() host.Probe {
	if diagnosed.Load() {
		return host.Probe{Outcome: host.Yes}
	}
	p := unixDiagnostics(askUnixDiagnostics)
	diagnosed.Store(p.Outcome == host.Yes)
	return p
}

// unixDiagnostics finds out whether the kernel has diagnostics of unix sockets. It asks
// for the socket with the number 0, which does not exist.
func unixDiagnostics(ask func() error) host.Probe {
	switch err := ask(); err {
	case unix.EINVAL: // the diagnostics answered
		return host.Probe{Outcome: host.Yes}
	case unix.ENOENT, unix.EOPNOTSUPP: // nothing handles the request
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: "the kernel has no diagnostics of unix sockets (CONFIG_UNIX_DIAG)",
			Fix: "load the kernel module unix_diag, or use a kernel that has it"}
	default: // for instance, a filter around this process refuses the socket
		return host.Probe{Reason: "diagnostics of unix sockets: " + err.Error()}
	}
}

// askUnixDiagnostics returns the kernel's answer, which is always an error.
func askUnixDiagnostics() error {
	const (
		byFamily    = 20 // SOCK_DIAG_BY_FAMILY
		requestSize = 24 // struct unix_diag_req
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := make([]byte, unix.SizeofNlMsghdr+requestSize)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], byFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST)
	message[unix.SizeofNlMsghdr] = unix.AF_UNIX
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 256)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
}

// slurp reads a small file of the system. os.ReadFile would first register the file
// with the poller, which takes longer than reading it, and each start reads a dozen
// files.
func slurp(name string) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 1024)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n <= 0 {
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, 3*cap(text))
		}
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
