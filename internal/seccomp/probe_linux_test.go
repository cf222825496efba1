//go:build linux && (amd64 || arm64)

package seccomp

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A probe is one call on the real kernel. Its arguments are such that it does
// no harm where no filter stops it, as root too: pointers are bad, flags are
// contradictory, descriptors are closed.
type probe struct {
	call string
	args [6]uintptr
	want Errno // 0: the call succeeds
	// sure: without the filter every kernel since 5.6 answers something else,
	// to an ordinary user too.
	sure bool
}

const (
	badPointer = 1
	badFD      = ^uintptr(0)
	atCWD      = ^uintptr(99) // AT_FDCWD, -100
)

// What the probes point at lives as long as the process: a pointer that is kept
// as a number keeps nothing alive.
var (
	paths   = map[string][]byte{}
	pairFDs [2]int32 // where socketpair writes
)

func path(name string) uintptr {
	if paths[name] == nil {
		paths[name] = append([]byte(name), 0)
	}
	return uintptr(unsafe.Pointer(&paths[name][0]))
}

// probes returns the calls to make. "file" and "folder" exist.
func probes() []probe {
	list := append(namespaceProbes(), kernelProbes()...)
	return append(append(list, fileProbes()...), socketProbes()...)
}

func namespaceProbes() []probe {
	return []probe{
		{"clone", [6]uintptr{unix.CLONE_NEWNS | unix.CLONE_FS}, EPERM, true},
		{"clone", [6]uintptr{unix.CLONE_PARENT | unix.CLONE_SIGHAND}, EPERM, true}, // EINVAL
		{"unshare", [6]uintptr{unix.CLONE_NEWUSER}, EPERM, true},                   // EINVAL with threads
		{"unshare", [6]uintptr{unix.CLONE_IO}, EPERM, true},                        // EINVAL
		{"unshare", [6]uintptr{unix.CLONE_FS | unix.CLONE_FILES}, 0, false},
		{"setns", [6]uintptr{badFD, 0}, EPERM, true},
		{"clone3", [6]uintptr{0, 0}, ENOSYS, true},
		{"sethostname", [6]uintptr{badPointer, badFD}, EPERM, false},
		{"setdomainname", [6]uintptr{badPointer, badFD}, EPERM, false},
		{"mount", [6]uintptr{badPointer, badPointer, badPointer}, EPERM, false},
		{"umount2", [6]uintptr{badPointer}, EPERM, false},
		{"pivot_root", [6]uintptr{badPointer, badPointer}, EPERM, false},
		{"chroot", [6]uintptr{badPointer}, EPERM, false},
		{"fsopen", [6]uintptr{badPointer}, ENOSYS, true},
		{"fsconfig", [6]uintptr{badFD}, ENOSYS, true},
		{"fsmount", [6]uintptr{badFD}, ENOSYS, true},
		{"fspick", [6]uintptr{badFD, badPointer}, ENOSYS, true},
		{"open_tree", [6]uintptr{badFD, badPointer}, ENOSYS, true},
		{"open_tree_attr", [6]uintptr{badFD, badPointer}, ENOSYS, false},
		{"move_mount", [6]uintptr{badFD, badPointer, badFD, badPointer}, ENOSYS, true},
		{"mount_setattr", [6]uintptr{badFD, badPointer}, ENOSYS, false},
	}
}

func kernelProbes() []probe {
	return []probe{
		{"add_key", [6]uintptr{badPointer}, ENOSYS, false},
		{"request_key", [6]uintptr{badPointer}, ENOSYS, false},
		{"keyctl", [6]uintptr{9999}, ENOSYS, false},
		{"bpf", [6]uintptr{9999}, EPERM, false},
		{"perf_event_open", [6]uintptr{badPointer}, EPERM, false},
		{"userfaultfd", [6]uintptr{9999}, EPERM, false},
		{"io_uring_setup", [6]uintptr{1, badPointer}, ENOSYS, false},
		{"io_uring_enter", [6]uintptr{badFD}, ENOSYS, false},
		{"io_uring_register", [6]uintptr{badFD}, ENOSYS, false},
		{"kexec_load", [6]uintptr{0, 9999}, EPERM, false},
		{"kexec_file_load", [6]uintptr{badFD, badFD}, EPERM, false},
		{"init_module", [6]uintptr{badPointer, 0, badPointer}, EPERM, false},
		{"finit_module", [6]uintptr{badFD, badPointer}, EPERM, false},
		{"delete_module", [6]uintptr{badPointer}, EPERM, false},
		{"create_module", [6]uintptr{badPointer}, EPERM, true},
		{"get_kernel_syms", [6]uintptr{badPointer}, EPERM, true},
		{"query_module", [6]uintptr{badPointer}, EPERM, true},
		{"nfsservctl", [6]uintptr{9999}, EPERM, true},
		{"lookup_dcookie", [6]uintptr{0, badPointer}, EPERM, false},
		{"uselib", [6]uintptr{badPointer}, EPERM, true},
		{"reboot", [6]uintptr{0, 0, 0}, EPERM, false}, // the magic numbers are missing
		{"swapon", [6]uintptr{badPointer}, EPERM, false},
		{"swapoff", [6]uintptr{badPointer}, EPERM, false},
		{"acct", [6]uintptr{badPointer}, EPERM, false},
		{"quotactl", [6]uintptr{9999 << 8, badPointer}, EPERM, false},
		{"quotactl_fd", [6]uintptr{badFD}, EPERM, true},
		{"vhangup", [6]uintptr{}, EPERM, false}, // the child has no terminal
		{"syslog", [6]uintptr{9999}, EPERM, false},
		{"settimeofday", [6]uintptr{badPointer, badPointer}, EPERM, false},
		{"clock_settime", [6]uintptr{9999, badPointer}, EPERM, true},
		{"adjtimex", [6]uintptr{badPointer}, EPERM, true},
		{"clock_adjtime", [6]uintptr{9999, badPointer}, EPERM, true},
		{"iopl", [6]uintptr{9999}, EPERM, false},
		{"ioperm", [6]uintptr{badFD, badFD, 1}, EPERM, false},
		{"modify_ldt", [6]uintptr{0, badPointer, 0}, ENOSYS, false},
		{"open_by_handle_at", [6]uintptr{badFD, badPointer}, EPERM, false},
		{"fanotify_init", [6]uintptr{badFD}, EPERM, false},
		{"personality", [6]uintptr{0xffffffff}, 0, false},
		{"personality", [6]uintptr{0x400000}, EPERM, true},
		{"personality", [6]uintptr{0x40000}, 0, false},
		{"ioctl", [6]uintptr{badFD, unix.TIOCSTI}, EPERM, true},
		{"ioctl", [6]uintptr{badFD, unix.TIOCSTI | 1<<32}, EPERM, true},
		{"ioctl", [6]uintptr{badFD, unix.TIOCLINUX}, EPERM, true},
		{"ioctl", [6]uintptr{badFD, unix.TIOCSETD}, EPERM, true},
		{"ioctl", [6]uintptr{badFD, 0x50009401}, EPERM, true},                // BTRFS_IOC_SNAP_CREATE
		{"ioctl", [6]uintptr{badFD, 0xc0406618}, EPERM, true},                // FS_IOC_REMOVE_ENCRYPTION_KEY
		{"ioctl", [6]uintptr{badFD, unix.FICLONE}, Errno(unix.EBADF), false}, // Btrfs made it, all have it
		{"fcntl", [6]uintptr{badFD, unix.F_SETLEASE}, EPERM, true},
		{"fcntl", [6]uintptr{badFD, unix.F_GETLEASE}, Errno(unix.EBADF), false},
	}
}

func fileProbes() []probe {
	file, folder := path("file"), path("folder")
	const create = unix.O_CREAT | unix.O_WRONLY | unix.O_EXCL
	return []probe{
		{"chmod", [6]uintptr{file, 0o4755}, EPERM, true},
		{"chmod", [6]uintptr{file, 0o755}, 0, false},
		{"fchmod", [6]uintptr{badFD, 0o4755}, EPERM, true},
		{"fchmodat", [6]uintptr{atCWD, file, 0o4755}, EPERM, true},
		{"fchmodat", [6]uintptr{atCWD, file, 0o6755}, EPERM, true},
		{"fchmodat", [6]uintptr{atCWD, folder, 0o2755}, 0, false},
		{"fchmodat2", [6]uintptr{atCWD, file, 0o4755}, EPERM, true},
		{"creat", [6]uintptr{path("created"), 0o4755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, path("openated"), create, 0o2755}, EPERM, true},
		{"mknodat", [6]uintptr{atCWD, path("set"), unix.S_IFREG | 0o2755}, EPERM, true},
		{"open", [6]uintptr{path("opened"), create, 0o4755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, path("openated"), create, 0o4755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, path("."), unix.O_TMPFILE | unix.O_RDWR, 0o4755}, EPERM, true},
		{"openat", [6]uintptr{atCWD, path("plain"), create, 0o755}, 0, false},
		{"openat", [6]uintptr{atCWD, file, unix.O_RDONLY, 0o4755}, 0, false}, // not a mode
		{"openat2", [6]uintptr{atCWD, file, badPointer, 24}, ENOSYS, true},
		{"mknod", [6]uintptr{path("node"), unix.S_IFCHR | 0o600, 0x103}, EPERM, false},
		{"mknodat", [6]uintptr{atCWD, path("node"), unix.S_IFCHR | 0o600, 0x103}, EPERM, false},
		{"mknodat", [6]uintptr{atCWD, path("node"), unix.S_IFBLK | 0o600, 0x700}, EPERM, false},
		{"mknodat", [6]uintptr{atCWD, path("set"), unix.S_IFREG | 0o4755}, EPERM, true},
		{"mknodat", [6]uintptr{atCWD, path("pipe"), unix.S_IFIFO | 0o600}, 0, false},
	}
}

func socketProbes() []probe {
	pair := uintptr(unsafe.Pointer(&pairFDs))
	list := []probe{
		{"socket", [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, 0, false},
		{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, 0, false},
		{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, 0, false},
		{"socket", [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, 0, false},
		{"socket", [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, EPROTONOSUPPORT, true},
		{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_DCCP}, ESOCKTNOSUPPORT, false},
		{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, EPROTONOSUPPORT, false},
		{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_PACKET}, ESOCKTNOSUPPORT, false},
		{"socketpair", [6]uintptr{unix.AF_UNIX, unix.SOCK_DGRAM, 0, pair}, 0, false},
	}
	for _, family := range []uintptr{
		unix.AF_VSOCK, unix.AF_PACKET, unix.AF_ALG, unix.AF_BLUETOOTH, unix.AF_KEY, unix.AF_TIPC,
		unix.AF_CAN, unix.AF_RDS, unix.AF_XDP, unix.AF_AX25, 99,
	} {
		list = append(list, probe{"socket", [6]uintptr{family, unix.SOCK_RAW}, EAFNOSUPPORT, false})
		list = append(list, probe{"socketpair", [6]uintptr{family, unix.SOCK_RAW, 0, pair}, EAFNOSUPPORT, false})
	}
	return list
}

// runProbes makes the calls under the filter and prints their errors in order.
func runProbes(o *Options) error {
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		return err
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		return err
	}
	list := probes()
	m, err := machineFor("")
	if err != nil {
		return err
	}
	if err := load(o); err != nil {
		return err
	}
	errnos := make([]int, len(list))
	for i, p := range list {
		n, _ := m.number(p.call)
		if n == absent {
			continue
		}
		_, _, e := unix.Syscall6(uintptr(n), p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
		errnos[i] = int(e)
	}
	return json.NewEncoder(os.Stdout).Encode(errnos)
}

// probeErrnos runs the probes in a child and returns their errors.
func probeErrnos(t *testing.T, o *Options) []int {
	t.Helper()
	r := child(t, childJob{Options: o})
	var errnos []int
	if err := json.Unmarshal([]byte(r.stdout), &errnos); err != nil {
		t.Fatalf("the child said %q, %q, status %d", r.stdout, r.stderr, r.code)
	}
	return errnos
}

// Every denied call fails with its error on the real kernel, and what should
// work works.
func TestKernelDenies(t *testing.T) { // N4
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	filtered := probeErrnos(t, &Options{})
	for i, p := range probes() {
		if n, _ := m.number(p.call); n != absent && filtered[i] != int(p.want) {
			t.Errorf("%s %x: %v, want %v", p.call, p.args, syscall.Errno(filtered[i]), p.want)
		}
	}
}

// Without the filter the same calls end otherwise: the test above can fail.
func TestProbesNeedTheFilter(t *testing.T) {
	if status, err := os.ReadFile("/proc/self/status"); err != nil || !strings.Contains(string(status), "Seccomp:\t0") {
		t.Skip("the test itself runs under a filter")
	}
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	bare := probeErrnos(t, nil)
	for i, p := range probes() {
		if n, _ := m.number(p.call); n != absent && p.sure && bare[i] == int(p.want) {
			t.Errorf("%s %x: %v without a filter too", p.call, p.args, p.want)
		}
	}
}

// Every call in the table is tried on the kernel, save those of an option.
func TestProbesCoverTheRules(t *testing.T) {
	tried := map[string]bool{}
	for _, p := range probes() {
		tried[p.call] = tried[p.call] || p.want != 0
	}
	for _, r := range rulesFor(Options{}) {
		for _, call := range r.calls {
			if !tried[call] {
				t.Errorf("no probe expects %s to be denied", call)
			}
		}
	}
}
