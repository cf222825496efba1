package seccomp

// Values of personality(2).
const (
	personalityQuery = 0xffffffff
	// personalityHarmless has PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE, which
	// setarch and debuggers use.
	personalityHarmless = 0x00060008
)

// kernelRules deny parts of the kernel that hold state across the sandbox's
// border or have been the way to root most often.
func kernelRules() []Rule {
	return []Rule{
		// Keyrings follow the user, not a namespace: the session keyring that
		// the command inherits may hold the caller's tickets and disk keys.
		// ENOSYS, as from a kernel without keys, which callers know.
		deny("keyrings", "the caller's keys would be readable, and keyrings are in no namespace",
			ENOSYS, "add_key", "request_key", "keyctl"),
		// Work on a ring is done by the kernel without passing any filter:
		// openat, socket, connect and more. Users of it fall back on ENOSYS.
		deny("io_uring", "a ring opens files and sockets without passing this filter",
			ENOSYS, "io_uring_setup", "io_uring_enter", "io_uring_register"),
		// EPERM, here and for userfaultfd, is what an ordinary user gets from
		// a hardened kernel (unprivileged_bpf_disabled, perf_event_paranoid,
		// unprivileged_userfaultfd).
		deny("kernel instrumentation", "programs and counters in the kernel see and change more than the sandbox",
			EPERM, "bpf", "perf_event_open").report(),
		deny("page faults", "a thread held at a page fault makes races in the kernel certain to win",
			EPERM, "userfaultfd"),
		// The call looks a file up by inode and never walks a path, so no
		// mask is in its way. On Linux 6.11 and later fewer capabilities are
		// needed for it.
		deny("files by handle", "any file of a file system could be opened, whatever is masked",
			EPERM, "open_by_handle_at"),
		// Watchers use inotify where this is refused, as before Linux 5.13.
		deny("fanotify", "events and permissions of a whole file system, the host's part too, could be watched",
			EPERM, "fanotify_init"),
		// No 64-bit program but an emulator of 16-bit or 32-bit Windows needs
		// it. ENOSYS, as from a kernel built without it.
		deny("segment tables", "segments of its own let a process confuse the kernel's entry code",
			ENOSYS, "modify_ldt"),
		// uselib needs no capability; the obsolete calls around it stay off
		// for kernels that still have them.
		deny("obsolete calls", "nothing uses them, and nobody tests them",
			EPERM, "uselib", "lookup_dcookie", "nfsservctl", "create_module", "get_kernel_syms", "query_module"),
		deny("personality", "old personalities map page zero, make data executable and run rarely tested code",
			EPERM, "personality").where(noneOf(0, personalityQuery), bits(0, ^uint32(personalityHarmless))),
	}
}

// hostRules deny control of the machine. A command without capabilities is
// refused by the kernel anyway; these hold for a privileged run.
func hostRules() []Rule {
	return []Rule{
		deny("kernel code", "code of the command's own would run as the kernel",
			EPERM, "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
		deny("machine control", "the whole machine would stop or change, not the sandbox",
			EPERM, "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup"),
		// Reading the clock's state goes too: the wish is behind a pointer.
		deny("clock", "the clock is the host's, and certificates and logs depend on it",
			EPERM, "settimeofday", "clock_settime", "adjtimex", "clock_adjtime"),
		// syslog(3), which writes messages, is not this call.
		deny("kernel log", "the log shows addresses in the kernel and what the host does",
			EPERM, "syslog"),
		deny("hardware ports", "ports reach hardware past every permission",
			EPERM, "iopl", "ioperm"),
	}
}

// ipcRule denies the objects of an IPC namespace, for a backend without one.
// ENOSYS is the answer of a kernel without them.
func ipcRule() Rule {
	return deny("IPC of the host", "shared memory and queues of other programs could be read and written", ENOSYS,
		"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop",
		"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink")
}
