package machine

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

// probeKeyFor returns the key of a program's probe, or of one that needs no program.
// It is not ok where a part cannot be found out: then nothing is remembered.
func probeKeyFor(s *host.Snapshot, program string) (key probeKey, ok bool) {
	boot := bootID()
	if boot == "" {
		return key, false
	}
	user, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return key, false
	}
	mount, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return key, false
	}
	key = probeKey{
		Boot: boot, Kernel: s.Kernel, UID: s.UID, UserNS: user, MountNS: mount,
		MaxUser:           s.Namespaces.MaxUser,
		UnprivilegedClone: s.Namespaces.UnprivilegedClone,
		AppArmorRestrict:  s.Namespaces.AppArmorRestrict,
	}
	key.Seccomp, _ = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0) // 0 where the kernel has none
	if key.Seccomp == unix.SECCOMP_MODE_FILTER {
		if key.Filters, ok = filters(); !ok {
			return key, false
		}
	}
	if label, err := slurp("/proc/self/attr/current"); err == nil { // an error where no module has labels
		key.Label = strings.TrimRight(string(label), "\x00\n")
	}
	return key, program == "" || key.stamp(program)
}

// filters is how many filters of system calls this thread has. Kernels before 5.9 do not say.
func filters() (n int, ok bool) {
	text, err := slurp("/proc/thread-self/status")
	if err != nil {
		return 0, false
	}
	_, rest, found := strings.Cut(string(text), "\nSeccomp_filters:")
	if !found {
		return 0, true
	}
	count, _, _ := strings.Cut(rest, "\n")
	n, err = strconv.Atoi(strings.TrimSpace(count))
	return n, err == nil
}

// knownBoot is the id of this boot, once it was read: no process outlives it.
var knownBoot atomic.Pointer[string]

// bootID returns the id of this boot, empty where it cannot be read.
func bootID() string {
	if id := knownBoot.Load(); id != nil {
		return *id
	}
	text, err := slurp("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(text))
	knownBoot.Store(&id)
	return id
}

// stamp fills in what tells one version of a program from another.
func (k *probeKey) stamp(program string) bool {
	var st unix.Stat_t
	if unix.Stat(program, &st) != nil {
		return false
	}
	k.Program, k.Device, k.Inode, k.Size = program, uint64(st.Dev), st.Ino, st.Size
	k.MTime = st.Mtim.Nano()
	return true
}
