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
		{name: name, calls: []string{"mknod"}, terms: device(1), when: when, errno: EPERM, reason: reason},
		{name: name, calls: []string{"mknodat"}, terms: device(2), when: when, errno: EPERM, reason: reason},
	}
}

// setuidRules deny the S_ISUID bit wherever a call takes a mode. Inside the bit
// does nothing (no_new_privs); left in the workspace, the file gives any user
// of the host who runs it the rights of its owner. mkdir is not here: it drops
// the bit itself.
func setuidRules() []rule {
	const (
		name   = "setuid files"
		when   = "a mode with the setuid bit"
		reason = "a setuid file left behind gives everybody on the host the rights of its owner"
	)
	return []rule{
		{
			name: name, calls: []string{"chmod", "fchmod", "creat", "mknod"}, errno: EPERM,
			terms: []term{bits(1, modeSetuid)}, when: when, reason: reason,
		},
		{
			name: name, calls: []string{"fchmodat", "fchmodat2", "mknodat"}, errno: EPERM,
			terms: []term{bits(2, modeSetuid)}, when: when, reason: reason,
		},
		{
			name: name, calls: []string{"open"}, errno: EPERM,
			terms: []term{bits(1, openMakes), bits(2, modeSetuid)}, when: when, reason: reason,
		},
		{
			name: name, calls: []string{"openat"}, errno: EPERM,
			terms: []term{bits(2, openMakes), bits(3, modeSetuid)}, when: when, reason: reason,
		},
		{
			// The mode is behind a pointer. Callers take ENOSYS for a kernel
			// before 5.6 and use openat.
			name: name, calls: []string{"openat2"}, errno: ENOSYS, reason: reason,
		},
	}
}
