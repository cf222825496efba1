package seccomp

import "slices"

// The oracle says a second time, in plain Go, what the filter should do. It
// shares the numbers with the compiler (they have their own test) and nothing
// else.

const (
	allowed = 0x7fff0000
	asked   = 0x7fc00000
)

var (
	alwaysEPERM = []string{
		"open_by_handle_at", "fanotify_init", "bpf", "perf_event_open", "userfaultfd",
		"uselib", "lookup_dcookie", "nfsservctl", "create_module", "get_kernel_syms", "query_module",
		"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
		"reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup",
		"settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "syslog", "iopl", "ioperm",
	}
	alwaysENOSYS = []string{
		"add_key", "request_key", "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register", "modify_ldt",
	}
	namespaceEPERM  = []string{"setns", "mount", "umount2", "pivot_root", "chroot", "sethostname", "setdomainname"}
	namespaceENOSYS = []string{
		"clone3", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr", "move_mount", "mount_setattr",
	}
	ipcENOSYS = []string{
		"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop",
		"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
	}
)

// expectation returns what the filter for o should return for a call of that
// name, by its arguments; an empty name is a call that no rule speaks of. fixed
// says that the arguments do not matter.
func expectation(o Options, name string) (of func(args [6]uint64) uint32, fixed bool) {
	if e := expectAlways(o, name); e != 0 || name == "" {
		return func([6]uint64) uint32 { return value(e) }, true
	}
	return func(args [6]uint64) uint32 {
		if deniedByArguments(o, name, args) {
			return value(1)
		}
		if e := socketErrno(o, name, args); e != 0 {
			return value(e)
		}
		if notified(o, name, args) {
			return asked
		}
		return allowed
	}, false
}

// notified says whether the listener is asked about a call that is not denied.
func notified(o Options, name string, args [6]uint64) bool {
	writes, reads := o.Notify&NotifyWrites != 0, o.Notify&NotifyReads != 0
	opens := func(flags uint64) bool {
		changes := flags&3 != 0 || flags&0o100 != 0 || flags&0o1000 != 0 || flags&0o20000000 != 0
		switch {
		case flags&0o10000000 != 0: // O_PATH
			return false
		case changes:
			return writes
		}
		return reads
	}
	switch name {
	case "open":
		return opens(args[1])
	case "openat":
		return opens(args[2])
	case "openat2":
		return writes || reads
	case "creat", "mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "link", "linkat",
		"symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "bind", "umask", "landlock_restrict_self", "flock":
		return writes
	case "fcntl":
		return writes && uint32(args[1]) >= 36 && uint32(args[1]) <= 38 // F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
	case "execve":
		return o.Notify&NotifyExec != 0
	case "execveat":
		return o.Notify&NotifyExec != 0 && args[4]&emptyPath == 0
	case "connect":
		return o.Notify&(NotifyConnect|NotifyDial) != 0
	case "socket", "socketpair":
		kind := uint32(args[1]) & 0xf
		return o.Notify&NotifyDatagrams != 0 && uint32(args[0]) == 1 && (kind == 2 || kind == 3)
	case "sendmsg", "sendmmsg":
		return o.Notify&NotifyConnect != 0
	case "sendto":
		return o.Notify&NotifyConnect != 0 && args[4] != 0
	}
	return false
}

// value returns what a filter returns for an error; 0 is none.
func value(errno uint32) uint32 {
	if errno == 0 {
		return allowed
	}
	return 0x00050000 | errno
}

// expectAlways returns the error of a call that is denied whatever its
// arguments, 0 for others.
func expectAlways(o Options, name string) uint32 {
	has := func(list []string) bool { return slices.Contains(list, name) }
	switch {
	case has(alwaysEPERM), has(namespaceEPERM) && !o.AllowNamespaces:
		return 1
	case has(alwaysENOSYS), has(namespaceENOSYS) && !o.AllowNamespaces, has(ipcENOSYS) && o.DenyIPC:
		return 38
	case name == "openat2" && !o.AllowSetuidBits:
		return 38
	}
	return 0
}

// deniedByArguments is for the calls that get EPERM for some arguments.
func deniedByArguments(o Options, name string, args [6]uint64) bool {
	file := func(arg int) bool { return !o.AllowSetuidBits && args[arg]&0o6000 != 0 }
	setuid := func(arg int) bool {
		return !o.AllowSetuidBits && (args[arg]&0o4000 != 0 || o.DenySetgidBits && args[arg]&0o2000 != 0)
	}
	makes := func(arg int) bool { return args[arg]&0o100 != 0 || args[arg]&0o20000000 != 0 }
	device := func(arg int) bool {
		kind := args[arg] & 0o170000
		return kind == 0o020000 || kind == 0o060000
	}
	other := func(arg int) bool {
		uid, gid := int32(args[arg]), int32(args[arg+1])
		return o.OneOwner && (uid != -1 && uid != int32(o.UID) || gid != -1 && gid != int32(o.GID))
	}
	low := uint32(args[0])
	switch name {
	case "clone":
		return low&0x8000 != 0 || !o.AllowNamespaces && low&(0x20000|0x02000000|0x04000000|0x08000000|0x10000000|0x20000000|0x40000000) != 0
	case "unshare":
		return !o.AllowNamespaces && low&^(0x100|0x200|0x400|0x800|0x10000|0x40000) != 0
	case "personality":
		return low != 0xffffffff && low&^(0x8|0x20000|0x40000) != 0
	case "ioctl":
		return deniedRequest(uint32(args[1]))
	case "fcntl":
		return uint32(args[1]) == 1024 || uint32(args[1]) == 1040
	case "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler":
		return o.DenyOthers && low != 0
	case "setpriority":
		return o.DenyOthers && (uint32(args[1]) != 0 || low == 2)
	case "ioprio_set":
		return o.DenyOthers && (uint32(args[1]) != 0 || low == 3)
	case "mknod":
		return device(1) || file(1)
	case "mknodat":
		return device(2) || file(2)
	case "chmod", "fchmod":
		return setuid(1)
	case "chown", "fchown", "lchown":
		return other(1)
	case "fchownat":
		return other(2)
	case "creat":
		return file(1)
	case "fchmodat", "fchmodat2":
		return setuid(2)
	case "open":
		return makes(1) && file(2)
	case "openat":
		return makes(2) && file(3)
	}
	return false
}

func deniedRequest(request uint32) bool {
	switch request {
	case 0x5412, 0x541c, 0x5423:
		return true
	}
	switch number := request & 0xff; request >> 8 & 0xff {
	case 0x94: // Btrfs
		return slices.Contains([]uint32{1, 14, 15, 23, 24, 26, 37, 63}, number)
	case 0xbc: // bcachefs
		return number == 16 || number == 17 || number == 29 || number == 30
	case 'o': // OCFS2
		return number == 4
	case 'f': // fscrypt
		return number >= 23 && number <= 25
	}
	return false
}

func socketErrno(o Options, name string, args [6]uint64) uint32 {
	family, kind, protocol := uint32(args[0]), uint32(args[1])&0xf, uint32(args[2])
	if name != "socket" && name != "socketpair" {
		return 0
	}
	switch family {
	case 1:
		switch {
		case o.DenyUnix && name == "socket":
			return 97
		case o.DenyUnix && kind != 1 && kind != 5:
			return 97
		}
	case 2, 10:
		switch {
		case o.DenyInet:
			return 97
		case name == "socketpair":
			return 0
		case kind < 1 || kind > 3:
			return 94
		case !slices.Contains([]uint32{0, 1, 6, 17, 58}, protocol):
			return 93
		}
	case 16:
		if name == "socket" && protocol != 0 {
			return 93
		}
	default:
		return 97
	}
	return 0
}
