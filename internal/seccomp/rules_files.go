package seccomp

// Requests of ioctl(2), the same on both architectures.
const (
	tiocsti   = 0x5412
	tioclinux = 0x541c
	tiocsetd  = 0x5423
)

// terminalRules deny putting characters into a terminal's input. The command
// and the caller may share a terminal, and the caller's shell runs what it
// reads there after the command has ended. Linux 6.2 can switch TIOCSTI off,
// and not every distribution does; TIOCLINUX pastes a selection on a console.
func terminalRules() []rule {
	const name = "terminal"
	return []rule{
		{
			name: name, calls: []string{"ioctl"}, errno: EPERM,
			terms: []term{oneOf(1, tiocsti, tioclinux)}, when: "TIOCSTI or TIOCLINUX",
			reason: "characters put into the terminal's input would be run by the caller's shell",
		},
		{
			name: name, calls: []string{"ioctl"}, errno: EPERM,
			terms: []term{oneOf(1, tiocsetd)}, when: "TIOCSETD",
			reason: "line disciplines load old kernel modules that anyone can then attack",
		},
	}
}

// Modes of files.
const (
	modeType   = 0o170000 // S_IFMT
	modeChar   = 0o020000 // S_IFCHR
	modeBlock  = 0o060000 // S_IFBLK
	modeSetuid = 0o004000 // S_ISUID
	modeSetgid = 0o002000 // S_ISGID
	// openMakes has O_CREAT and __O_TMPFILE. Without one of them the mode is
	// not an argument and its register holds anything.
	openMakes = 0x00400040
)

// deviceRules deny device nodes. Pipes, sockets and plain files can be made.
func deviceRules() []rule {
	const (
		name   = "device nodes"
		when   = "of a character or block device"
		reason = "a node in a writable folder reaches the disk or memory of the host past every mask"
	)
	device := func(arg int) []term { return []term{oneOf(arg, modeChar, modeBlock).masked(modeType)} }
	return []rule{
		{name: name, calls: []string{"mknod"}, terms: device(1), when: when, errno: EPERM, reason: reason, told: true},
		{name: name, calls: []string{"mknodat"}, terms: device(2), when: when, errno: EPERM, reason: reason, told: true},
	}
}

// setuidRules deny the S_ISUID bit wherever a call takes a mode, and S_ISGID
// where the call makes a file, so that no folder can be meant. Inside the bits do
// nothing (no_new_privs); left in the workspace, the file gives any user of the
// host who runs it the rights of its owner or group. mkdir is not here: it drops
// the bits itself.
func setuidRules(o Options) []rule {
	const (
		name   = "setuid files"
		either = "a mode with the setuid or the setgid bit"
		reason = "a setuid file left behind gives everybody on the host the rights of its owner"
		file   = modeSetuid | modeSetgid
	)
	change, when := uint32(modeSetuid), "a mode with the setuid bit"
	if o.DenySetgidBits {
		change, when = file, either
	}
	deny := func(when string, calls []string, terms ...term) rule {
		return rule{name: name, calls: calls, terms: terms, when: when, errno: EPERM, reason: reason}
	}
	return []rule{
		deny(when, []string{"chmod", "fchmod"}, bits(1, change)),
		deny(when, []string{"fchmodat", "fchmodat2"}, bits(2, change)),
		deny(either, []string{"creat", "mknod"}, bits(1, file)),
		deny(either, []string{"mknodat"}, bits(2, file)),
		deny(either, []string{"open"}, bits(1, openMakes), bits(2, file)),
		deny(either, []string{"openat"}, bits(2, openMakes), bits(3, file)),
		{
			// The mode is behind a pointer. Callers take ENOSYS for a kernel
			// before 5.6 and use openat.
			name: name, calls: []string{"openat2"}, errno: ENOSYS, reason: reason,
		},
	}
}

// ownerRules deny giving a file to somebody else, which an ordinary user cannot
// do anyway: see [Options.OneOwner]. The answer is the same whether the file exists
// or not, because a filter sees no path.
func ownerRules(o Options) []rule {
	const (
		name   = "other owners"
		when   = "to another user or group than the caller's"
		reason = "an ordinary user cannot give a file away"
		same   = ^uint32(0) // -1: the owner stays
	)
	deny := func(arg int, id uint32, calls ...string) rule {
		return rule{name: name, calls: calls, terms: []term{noneOf(arg, same, id)}, when: when, errno: EPERM, reason: reason}
	}
	return []rule{
		deny(1, o.UID, "chown", "fchown", "lchown"),
		deny(2, o.GID, "chown", "fchown", "lchown"),
		deny(2, o.UID, "fchownat"),
		deny(3, o.GID, "fchownat"),
	}
}
