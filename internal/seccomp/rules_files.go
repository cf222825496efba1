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
func terminalRules() []Rule {
	const name = "terminal"
	return []Rule{
		deny(name, "characters put into the terminal's input would be run by the caller's shell", EPERM, "ioctl").
			where(oneOf(1, tiocsti, tioclinux)),
		deny(name, "line disciplines load old kernel modules that anyone can then attack", EPERM, "ioctl").
			where(oneOf(1, tiocsetd)),
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
func deviceRules() []Rule {
	const (
		name   = "device nodes"
		reason = "a node in a writable folder reaches the disk or memory of the host past every mask"
	)
	device := func(arg int) term { return oneOf(arg, modeChar, modeBlock).masked(modeType) }
	return []Rule{
		deny(name, reason, EPERM, "mknod").where(device(1)).report(),
		deny(name, reason, EPERM, "mknodat").where(device(2)).report(),
	}
}

// setuidRules deny the S_ISUID bit wherever a call takes a mode, and S_ISGID
// where the call makes a file, so that no folder can be meant. Inside the bits do
// nothing (no_new_privs); left in the workspace, the file gives any user of the
// host who runs it the rights of its owner or group. mkdir is not here: it drops
// the bits itself.
func setuidRules(o Options) []Rule {
	const (
		name   = "setuid files"
		reason = "a setuid file left behind gives everybody on the host the rights of its owner"
		file   = modeSetuid | modeSetgid
	)
	change := uint32(modeSetuid)
	if o.DenySetgidBits {
		change = file
	}
	return []Rule{
		deny(name, reason, EPERM, "chmod", "fchmod").where(bits(1, change)),
		deny(name, reason, EPERM, "fchmodat", "fchmodat2").where(bits(2, change)),
		deny(name, reason, EPERM, "creat", "mknod").where(bits(1, file)),
		deny(name, reason, EPERM, "mknodat").where(bits(2, file)),
		deny(name, reason, EPERM, "open").where(bits(1, openMakes), bits(2, file)),
		deny(name, reason, EPERM, "openat").where(bits(2, openMakes), bits(3, file)),
		// The mode is behind a pointer. Callers take ENOSYS for a kernel
		// before 5.6 and use openat.
		deny(name, reason, ENOSYS, "openat2"),
	}
}

// ownerRules deny giving a file to somebody else, which an ordinary user cannot
// do anyway: see [Options.OneOwner]. The answer is the same whether the file exists
// or not, because a filter sees no path.
func ownerRules(o Options) []Rule {
	const same = ^uint32(0) // -1: the owner stays
	other := func(arg int, id uint32, calls ...string) Rule {
		return deny("other owners", "an ordinary user cannot give a file away", EPERM, calls...).where(noneOf(arg, same, id))
	}
	return []Rule{
		other(1, o.UID, "chown", "fchown", "lchown"),
		other(2, o.GID, "chown", "fchown", "lchown"),
		other(2, o.UID, "fchownat"),
		other(3, o.GID, "fchownat"),
	}
}
