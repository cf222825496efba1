package sysprog

// A call is a system call that programs may make.
type call struct {
	name         string
	amd64, arm64 uint16
}

// calls is sorted by name. A call that changes the memory of its process is left
// out on purpose: a child shares its memory with the caller.
var calls = []call{
	{"bind", 49, 200},
	{"capset", 126, 91},
	{"chdir", 80, 49},
	{"chroot", 161, 51},
	{"clock_nanosleep", 230, 115},
	{"clone3", 435, 435},
	{"close", 3, 57},
	{"close_range", 436, 436},
	{"connect", 42, 203},
	{"dup3", 292, 24},
	{"execve", 59, 221},
	{"execveat", 322, 281},
	{"exit_group", 231, 94},
	{"faccessat2", 439, 439},
	{"fchdir", 81, 50},
	{"fchmodat", 268, 53},
	{"fchownat", 260, 54},
	{"fcntl", 72, 25},
	{"fsconfig", 431, 431},
	{"fsetxattr", 190, 7},
	{"fsmount", 432, 432},
	{"fsopen", 430, 430},
	{"fspick", 433, 433},
	{"ftruncate", 77, 46},
	{"getpid", 39, 172},
	{"getppid", 110, 173},
	{"getuid", 102, 174},
	{"ioctl", 16, 29},
	{"ioprio_set", 251, 30},
	{"keyctl", 250, 219},
	{"kill", 62, 129},
	{"landlock_add_rule", 445, 445},
	{"landlock_create_ruleset", 444, 444},
	{"landlock_restrict_self", 446, 446},
	{"linkat", 265, 37},
	{"listen", 50, 201},
	{"memfd_create", 319, 279},
	{"mkdirat", 258, 34},
	{"mknodat", 259, 33},
	{"mount", 165, 40},
	{"mount_setattr", 442, 442},
	{"move_mount", 429, 429},
	{"open_tree", 428, 428},
	{"open_tree_attr", 467, 467},
	{"openat", 257, 56},
	{"openat2", 437, 437},
	{"personality", 135, 92},
	{"pidfd_open", 434, 434},
	{"pipe2", 293, 59},
	{"pivot_root", 155, 41},
	{"prctl", 157, 167},
	{"prlimit64", 302, 261},
	{"read", 0, 63},
	{"renameat2", 316, 276},
	{"rt_sigaction", 13, 134},
	{"rt_sigprocmask", 14, 135},
	{"sched_setaffinity", 203, 122},
	{"seccomp", 317, 277},
	{"sendmsg", 46, 211},
	{"setdomainname", 171, 162},
	{"setgroups", 116, 159},
	{"sethostname", 170, 161},
	{"setns", 308, 268},
	{"setpgid", 109, 154},
	{"setpriority", 141, 140},
	{"setresgid", 119, 149},
	{"setresuid", 117, 147},
	{"setsid", 112, 157},
	{"socket", 41, 198},
	{"statx", 332, 291},
	{"symlinkat", 266, 36},
	{"umask", 95, 166},
	{"umount2", 166, 39},
	{"unlinkat", 263, 35},
	{"unshare", 272, 97},
	{"utimensat", 280, 88},
	{"write", 1, 64},
}

// An arch is an architecture that programs run on.
type arch string

const (
	amd64 arch = "amd64"
	arm64 arch = "arm64"
)

// supported reports whether a is known here.
func (a arch) supported() bool { return a == amd64 || a == arm64 }

// number returns the number of the named system call. It is asked for each step,
// so it compares by itself and not through a function.
func (a arch) number(name string) (uint64, bool) {
	low, high := 0, len(calls)
	for low < high {
		if middle := (low + high) / 2; calls[middle].name < name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	switch {
	case low == len(calls) || calls[low].name != name:
		return 0, false
	case a == arm64:
		return uint64(calls[low].arm64), true
	}
	return uint64(calls[low].amd64), true
}

// openFlags translates the flags of open, which are written down in the numbers
// of amd64: four of them have other numbers on arm64.
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
