package seccomp

// cloneParent is CLONE_PARENT of clone(2).
const cloneParent = 0x00008000

// Commands of fcntl(2). The second came with Linux 6.19.
const (
	setLease      = 1024 // F_SETLEASE
	setDelegation = 1040 // F_SETDELEG

	getOFDLock     = 36 // F_OFD_GETLK
	setOFDLock     = 37 // F_OFD_SETLK
	setOFDLockWait = 38 // F_OFD_SETLKW
)

// Values of setpriority(2) and ioprio_set(2).
const (
	priorityOfUser   = 2 // PRIO_USER
	ioPriorityOfUser = 3 // IOPRIO_WHO_USER
)

// processRules deny what a process could do to others without a signal.
func processRules() []Rule {
	return []Rule{
		// A pid namespace whose first process is not the command's parent has
		// commands with a parent outside.
		deny("foreign children", "the child would be the supervisor's, which knows nothing of it, and outlive the command",
			EPERM, "clone").where(bits(0, cloneParent)),
		deny("leases", "whoever opens a file that is leased waits for the command, for 45 seconds each time; to read it is enough",
			EPERM, "fcntl").where(oneOf(1, setLease, setDelegation)),
	}
}

// otherRules deny what takes the number of a process, for a backend without a pid
// namespace. Landlock has no hook for any of these, and a limit on the time of the
// processor is a deferred SIGKILL. 0 is the caller itself.
func otherRules() []Rule {
	const (
		name   = "other processes"
		reason = "limits and priorities of the user's other processes could be set: a limit on processor time kills"
	)
	return []Rule{
		deny(name, reason, EPERM, "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler").where(noneOf(0, 0)),
		deny(name, reason, EPERM, "setpriority", "ioprio_set").where(noneOf(1, 0)),
		deny(name, reason, EPERM, "setpriority").where(oneOf(0, priorityOfUser)),
		deny(name, reason, EPERM, "ioprio_set").where(oneOf(0, ioPriorityOfUser)),
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
func volumeRules() []Rule {
	const low = 0xffff
	return []Rule{
		deny("snapshots", "a snapshot shows the files that are hidden by masks, and can have any name", EPERM, "ioctl").
			where(oneOf(1, volumeRequests...).masked(low)),
		deny("file keys", "the keys are the user's: without them the host's own folders are locked", EPERM, "ioctl").
			where(oneOf(1, encryptionRequests...).masked(low)),
	}
}
