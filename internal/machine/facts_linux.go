package machine

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

var homeVariables = []string{"HOME"}

// workingFolder asks the kernel, whose answer has no symbolic links; $PWD may.
func workingFolder() (string, error) { return unix.Getwd() }

// collectKernel fills in what the kernel tells without a probe.
func collectKernel(s *host.Snapshot) {
	s.Kernel = kernelRelease()
	s.MemoryTotal = memoryTotal()
	s.Namespaces.MaxUser = sysctl("user/max_user_namespaces")
	s.Namespaces.UnprivilegedClone = sysctl("kernel/unprivileged_userns_clone")
	s.Namespaces.AppArmorRestrict = sysctl("kernel/apparmor_restrict_unprivileged_userns")
	s.Landlock = landlock()
	s.UnixDiagnostics = knownDiagnostics()
	if text, err := slurp("/proc/net/unix"); err == nil {
		s.Sockets, s.Datagrams = boundSockets(text), parseDatagrams(text)
	}
}

// boundSockets returns where the sockets of /proc/net/unix are.
func boundSockets(text []byte) []string {
	absolute, relative := parseUnixSockets(text)
	if len(relative) == 0 {
		return absolute
	}
	all := slices.Concat(absolute, findRelative(relative, workingFolders(), hostfs.OS{}))
	slices.Sort(all)
	return slices.Compact(all)
}

// workingFolders returns the folders that the processes of this machine work in,
// as far as the caller may know them.
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
	slices.Sort(folders)
	return slices.Compact(folders)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func memoryTotal() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 0
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// sysctl reads a number below /proc/sys, -1 where there is none.
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

// landlock asks for the ABI. ENOSYS is a kernel without Landlock (it came with
// 5.13), EOPNOTSUPP one that has it compiled in and not switched on. EPERM is
// what a seccomp filter around us answers.
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

// people are the homes of people who are not in the user database: none here.
func people(string) []string { return nil }
