package sysprog

import (
	"slices"
	"strings"
)

// A call is a system call that programs may make.
type call struct {
	name         string
	amd64, arm64 uint16
}

// calls is sorted by name. Calls that change the memory of their process are left out on
// purpose: a child shares its memory with the caller.
var calls = []call{
	{"bind", 49, 200},
	{"capset", 126, 91},
	{"chdir", 80, 49},
	{"clock_nanosleep", 230, 115},
	{"clone3", 435, 435},
	{"close", 3, 57},
	{"close_range", 436, 436},
	{"connect", 42, 203},
	{"dup3", 292, 24},
	{"execve", 59, 221},
	{"execveat", 322, 281},
	{"exit_group", 231, 94},
	{"fchdir", 81, 50},
	{"fchmodat", 268, 53},
	{"fcntl", 72, 25},
	{"fsconfig", 431, 431},
	{"fsmount", 432, 432},
	{"fsopen", 430, 430},
	{"getpid", 39, 172},
	{"ioctl", 16, 29},
	{"kill", 62, 129},
	{"landlock_add_rule", 445, 445},
	{"landlock_create_ruleset", 444, 444},
	{"landlock_restrict_self", 446, 446},
	{"listen", 50, 201},
	{"memfd_create", 319, 279},
	{"mkdirat", 258, 34},
	{"mknodat", 259, 33},
	{"mount", 165, 40},
	{"mount_setattr", 442, 442},
	{"move_mount", 429, 429},
	{"open_tree", 428, 428},
	{"openat", 257, 56},
	{"openat2", 437, 437},
	{"personality", 135, 92},
	{"pidfd_open", 434, 434},
	{"pipe2", 293, 59},
	{"pivot_root", 155, 41},
	{"prctl", 157, 167},
	{"prlimit64", 302, 261},
	{"read", 0, 63},
	{"rt_sigaction", 13, 134},
	{"rt_sigprocmask", 14, 135},
	{"seccomp", 317, 277},
	{"sendmsg", 46, 211},
	{"setgroups", 116, 159},
	{"sethostname", 170, 161},
	{"setns", 308, 268},
	{"setresgid", 119, 149},
	{"setresuid", 117, 147},
	{"setsid", 112, 157},
	{"socket", 41, 198},
	{"statx", 332, 291},
	{"symlinkat", 266, 36},
	{"umask", 95, 166},
	{"umount2", 166, 39},
	{"unshare", 272, 97},
	{"write", 1, 64},
}

// An arch is an architecture on which programs run.
type arch string

const (
	amd64 arch = "amd64"
	arm64 arch = "arm64"
)

// supported reports whether programs run on a.
func (a arch) supported() bool { return a == amd64 || a == arm64 }

// number returns the number of the named system call.
func (a arch) number(name string) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(calls, name, func(c call, name string) int { return strings.Compare(c.name, name) })
	switch {
	case !ok:
		return 0, false
	case a == arm64:
		return uint64(calls[i].arm64), true
	}
	return uint64(calls[i].amd64), true
}

// openFlags translates the flags of open, which have the numbers of amd64: four of them have
// other numbers on arm64.
func (a arch) openFlags(f OpenFlag) uint64 {
	if a != arm64 {
		return uint64(f)
	}
	out := f &^ (OpenDirect | OpenLargeFile | OpenDirectory | OpenNoFollow)
	for _, m := range []struct{ from, to OpenFlag }{
		{OpenDirectory, 0x4000}, {OpenNoFollow, 0x8000}, {OpenDirect, 0x10000}, {OpenLargeFile, 0x20000},
	} {
		if f&m.from != 0 {
			out |= m.to
		}
	}
	return uint64(out)
}
