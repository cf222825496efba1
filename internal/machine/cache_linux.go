package machine

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

// probeKeyFor returns the key for a probe of a program, or, with program "", of a probe
// that needs none. ok is false if a part of the key cannot be read: then nothing is
// remembered.
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

// filters returns the number of seccomp filters of this thread, or 0 before Linux 5.9, which
// does not report it.
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

// knownBoot is the id of this boot, once it was read. It cannot change while this
// process runs.
var knownBoot atomic.Pointer[string]

// bootID returns the id of this boot, or "" if it cannot be read.
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

// stamp sets the fields that identify the version of a program.
func (k *probeKey) stamp(program string) bool {
	var st unix.Stat_t
	if unix.Stat(program, &st) != nil {
		return false
	}
	k.Program, k.Device, k.Inode, k.Size = program, uint64(st.Dev), st.Ino, st.Size
	k.MTime = st.Mtim.Nano()
	return true
}
