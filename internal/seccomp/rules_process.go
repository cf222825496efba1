package seccomp

// cloneParent is CLONE_PARENT of clone(2).
const cloneParent = 0x00008000

// Commands of fcntl(2). The second came with Linux 6.19.
const (
	setLease      = 1024 // F_SETLEASE
	setDelegation = 1040 // F_SETDELEG
)

// Values of setpriority(2) and ioprio_set(2).
const (
	priorityOfUser   = 2 // PRIO_USER
	ioPriorityOfUser = 3 // IOPRIO_WHO_USER
)

// processRules deny what a process could do to others without a signal.
func processRules(o Options) []rule {
	list := []rule{
		{
			// A pid namespace whose first process is not the command's parent has
			// commands with a parent outside.
			name: "foreign children", calls: []string{"clone"}, errno: EPERM,
			terms: []term{bits(0, cloneParent)}, when: "with CLONE_PARENT",
			reason: "the child would be the supervisor's, which knows nothing of it, and outlive the command",
		},
		{
			name: "leases", calls: []string{"fcntl"}, errno: EPERM,
			terms: []term{oneOf(1, setLease, setDelegation)}, when: "F_SETLEASE or F_SETDELEG",
			reason: "whoever opens a file that is leased waits for the command, for 45 seconds each time; to read it is enough",
		},
	}
	if o.DenyOthers {
		list = append(list, otherRules()...)
	}
	return list
}

// otherRules deny what takes the number of a process, for a backend without a pid
// namespace. Landlock has no hook for any of these, and a limit on the time of the
// processor is a deferred SIGKILL. 0 is the caller itself.
func otherRules() []rule {
	const (
		name   = "other processes"
		reason = "limits and priorities of the user's other processes could be set: a limit on processor time kills"
	)
	return []rule{
		{
			name: name, errno: EPERM, reason: reason, terms: []term{noneOf(0, 0)}, when: "of another process",
			calls: []string{"prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"},
		},
		{
			name: name, errno: EPERM, reason: reason, terms: []term{noneOf(1, 0)}, when: "of another process",
			calls: []string{"setpriority", "ioprio_set"},
		},
		{
			name: name, calls: []string{"setpriority"}, errno: EPERM, reason: reason,
			terms: []term{oneOf(0, priorityOfUser)}, when: "of all processes of the user",
		},
		{
			name: name, calls: []string{"ioprio_set"}, errno: EPERM, reason: reason,
			terms: []term{oneOf(0, ioPriorityOfUser)}, when: "of all processes of the user",
		},
	}
}

// The low halves of requests of ioctl(2), which are the kind and the number without
// direction and size.
var (
	// Subvolumes and snapshots are made and removed by requests on a folder that
	// needs to be open for reading only: BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE,
	// SNAP_DESTROY, SNAP_CREATE_V2, SUBVOL_CREATE_V2, SUBVOL_SETFLAGS,
	// SET_RECEIVED_SUBVOL and SNAP_DESTROY_V2; BCH_IOCTL_SUBVOLUME_CREATE and
	// DESTROY in both versions; OCFS2_IOC_REFLINK.
	volumeRequests = []uint32{
		0x9401, 0x940e, 0x940f, 0x9417, 0x9418, 0x941a, 0x9425, 0x943f,
		0xbc10, 0xbc11, 0xbc1d, 0xbc1e,
		0x6f04,
	}
	// FS_IOC_ADD_ENCRYPTION_KEY, REMOVE_ENCRYPTION_KEY and
	// REMOVE_ENCRYPTION_KEY_ALL_USERS.
	encryptionRequests = []uint32{0x6617, 0x6618, 0x6619}
)

// volumeRules deny requests to file systems that go past paths. No hook of Landlock
// sees them, and no mount is in their way.
func volumeRules() []rule {
	const low = 0xffff
	return []rule{
		{
			name: "snapshots", calls: []string{"ioctl"}, errno: EPERM,
			terms: []term{oneOf(1, volumeRequests...).masked(low)}, when: "for subvolumes, snapshots and clones by name",
			reason: "a snapshot shows the files that are hidden by masks, and can have any name",
		},
		{
			name: "file keys", calls: []string{"ioctl"}, errno: EPERM,
			terms: []term{oneOf(1, encryptionRequests...).masked(low)}, when: "that add or remove a key of encrypted folders",
			reason: "the keys are the user's: without them the host's own folders are locked",
		},
	}
}
