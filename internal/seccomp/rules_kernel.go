package seccomp

// kernelRules deny parts of the kernel that hold state across the sandbox's
// border or have been the way to root most often.
func kernelRules() []rule {
	return []rule{
		{
			// Keyrings follow the user, not a namespace: the session keyring that
			// the command inherits may hold the caller's tickets and disk keys.
			// ENOSYS, as from a kernel without keys, which callers know.
			name: "keyrings", calls: []string{"add_key", "request_key", "keyctl"}, errno: ENOSYS,
			reason: "the caller's keys would be readable, and keyrings are in no namespace",
		},
		{
			// Work on a ring is done by the kernel without passing any filter:
			// openat, socket, connect and more. Users of it fall back on ENOSYS.
			name: "io_uring", calls: []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}, errno: ENOSYS,
			reason: "a ring opens files and sockets without passing this filter",
		},
		{
			// EPERM, here and for userfaultfd, is what an ordinary user gets from
			// a hardened kernel (unprivileged_bpf_disabled, perf_event_paranoid,
			// unprivileged_userfaultfd).
			name: "kernel instrumentation", calls: []string{"bpf", "perf_event_open"}, errno: EPERM, told: true,
			reason: "programs and counters in the kernel see and change more than the sandbox",
		},
		{
			name: "page faults", calls: []string{"userfaultfd"}, errno: EPERM,
			reason: "a thread held at a page fault makes races in the kernel certain to win",
		},
		{
			// The call looks a file up by inode and never walks a path, so no
			// mask is in its way. On Linux 6.11 and later fewer capabilities are
			// needed for it.
			name: "files by handle", calls: []string{"open_by_handle_at"}, errno: EPERM,
			reason: "any file of a file system could be opened, whatever is masked",
		},
		{
			// Watchers use inotify where this is refused, as before Linux 5.13.
			name: "fanotify", calls: []string{"fanotify_init"}, errno: EPERM,
			reason: "events and permissions of a whole file system, the host's part too, could be watched",
		},
		{
			// No 64-bit program but an emulator of 16-bit or 32-bit Windows needs
			// it. ENOSYS, as from a kernel built without it.
			name: "segment tables", calls: []string{"modify_ldt"}, errno: ENOSYS,
			reason: "segments of its own let a process confuse the kernel's entry code",
		},
		{
			// uselib needs no capability; the obsolete calls around it stay off
			// for kernels that still have them.
			name: "obsolete calls", errno: EPERM,
			calls:  []string{"uselib", "lookup_dcookie", "nfsservctl", "create_module", "get_kernel_syms", "query_module"},
			reason: "nothing uses them, and nobody tests them",
		},
		{
			name: "personality", calls: []string{"personality"}, errno: EPERM,
			terms:  []term{noneOf(0, personalityQuery), bits(0, ^uint32(personalityHarmless))},
			when:   "other than Linux, linux32, uname 2.6 or without address randomisation",
			reason: "old personalities map page zero, make data executable and run rarely tested code",
		},
	}
}

// Values of personality(2).
const (
	personalityQuery = 0xffffffff
	// personalityHarmless has PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE, which
	// setarch and debuggers use.
	personalityHarmless = 0x00060008
)

// hostRules deny control of the machine. A command without capabilities is
// refused by the kernel anyway; these hold for a privileged run.
func hostRules() []rule {
	return []rule{
		{
			name: "kernel code", errno: EPERM,
			calls:  []string{"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"},
			reason: "code of the command's own would run as the kernel",
		},
		{
			name: "machine control", errno: EPERM,
			calls:  []string{"reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup"},
			reason: "the whole machine would stop or change, not the sandbox",
		},
		{
			// Reading the clock's state goes too: the wish is behind a pointer.
			name: "clock", errno: EPERM,
			calls:  []string{"settimeofday", "clock_settime", "adjtimex", "clock_adjtime"},
			reason: "the clock is the host's, and certificates and logs depend on it",
		},
		{
			// syslog(3), which writes messages, is not this call.
			name: "kernel log", calls: []string{"syslog"}, errno: EPERM,
			reason: "the log shows addresses in the kernel and what the host does",
		},
		{
			name: "hardware ports", calls: []string{"iopl", "ioperm"}, errno: EPERM,
			reason: "ports reach hardware past every permission",
		},
	}
}

// ipcRules deny the objects of an IPC namespace, for a backend without one.
// ENOSYS is the answer of a kernel without them.
func ipcRules() []rule {
	return []rule{{
		name: "IPC of the host", errno: ENOSYS,
		calls: []string{
			"shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop",
			"msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
		},
		reason: "shared memory and queues of other programs could be read and written",
	}}
}
