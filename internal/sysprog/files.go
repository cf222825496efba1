package sysprog

import (
	"encoding/binary"
	"fmt"
)

// Openat opens a path below dir; [Cwd] stands for the working folder. Close-on-exec is added
// to the flags.
func (b Block) Openat(dir Arg, path string, f OpenFlag, perm uint32) Arg {
	f |= OpenCloexec
	open := flags(uint64(f), openNames)
	open.Kind = KindOpenFlags
	return b.CallResult("openat", dir, Str(path), open, mode(perm))
}

// Openat2 opens a path below dir, with Resolve… restrictions on the look-up. Close-on-exec is
// added to the flags. It needs Linux 5.6.
func (b Block) Openat2(dir Arg, path string, f OpenFlag, resolve uint64) Arg {
	f |= OpenCloexec
	data := binary.LittleEndian.AppendUint64(nil, 0) // the mode of a new file
	data = binary.LittleEndian.AppendUint64(data, resolve)
	how := Arg{Kind: KindOpenHow, Value: uint64(f), Text: string(data), note: func() string {
		return "{flags=" + describe(uint64(f), openNames) + ", resolve=" + describe(resolve, resolveNames) + "}"
	}}
	return b.CallResult("openat2", dir, Str(path), how, Const(sizeofOpenHow))
}

// SameFile fails unless the two descriptors refer to the same file, by device and inode. In a
// new mount namespace, a mount can only be made from a descriptor that was opened inside it;
// for one that the caller opened, the kernel returns EINVAL. So the program has to open again
// what the caller has opened and checked, and SameFile detects if another file has replaced it
// in between.
func (b Block) SameFile(one, two Arg) { b.Call(macroSameFile, one, two) }

// ReportInode reports the inode of the file at the path to the caller, who gets it from
// [Process.Inode]. A program does that at most once.
func (b Block) ReportInode(path string) {
	found := Arg{Kind: KindOutput, Value: sizeofStatx}
	b.Call("statx", Cwd(), Str(path), Const(0), Named(statxIno, "STATX_INO"), found)
}

// Close closes a descriptor.
func (b Block) Close(fd Arg) { b.dependent().Call("close", fd) }

// Write writes the whole text in one call.
func (b Block) Write(fd Arg, text string) {
	b.exactly(len(text), "write", fd, Arg{Kind: KindBytes, Text: text}, Const(uint64(len(text))))
}

// Read reads exactly n bytes in one call, and drops them. End of file fails the step.
func (b Block) Read(fd Arg, n int) {
	b.exactly(n, "read", fd, Bytes(make([]byte, n), "…"), Const(uint64(n)))
}

// WriteFile writes the text into an existing file, in one write as the files of /proc need it.
// If the open fails with an ignored error, the rest has no effect.
func (b Block) WriteFile(path, text string) {
	fd := b.Openat(Cwd(), path, OpenWrite, 0)
	b.dependent().Write(fd, text)
	b.Close(fd)
}

// CloseOthers closes every descriptor except the files of the program and the given numbers.
// It has to come first, because it would close what earlier steps opened. It needs Linux 5.9.
func (b Block) CloseOthers(keep ...int) {
	var args []Arg
	for _, fd := range keep {
		args = append(args, FD(fd))
	}
	b.Call(macroCloseOthers, args...)
}

// CloexecFrom makes every descriptor from first on close-on-exec. It needs Linux 5.11.
func (b Block) CloexecFrom(first uint32) {
	b.Call("close_range", Const(uint64(first)), Named(fdMax, "~0U"), Named(closeRangeCloexec, "CLOSE_RANGE_CLOEXEC"))
}

// Dup3 makes the number a copy of the descriptor, without close-on-exec.
func (b Block) Dup3(fd Arg, number int) { b.Call("dup3", fd, FD(number), Const(0)) }

// SendFD sends a byte, together with the descriptor of that number, over a unix socket
// (SCM_RIGHTS). Steps cannot write results into memory, so the number has to be known in
// advance: see [Block.Dup3].
func (b Block) SendFD(socket Arg, number int) {
	message := Arg{Kind: KindMessage, Value: uint64(number), Text: "\x00"}
	message.note = func() string { return fmt.Sprintf("{1 byte, SCM_RIGHTS=[%d]}", number) }
	b.exactly(len(message.Text), "sendmsg", socket, message, Named(msgNoSignal, "MSG_NOSIGNAL"))
}

// MoveAbove makes a copy of the descriptor with a number of least or more.
func (b Block) MoveAbove(fd Arg, least int) Arg {
	return b.CallResult("fcntl", fd, Named(dupCloexec, "F_DUPFD_CLOEXEC"), FD(least))
}

// Install gives the command its descriptors: the first of fds becomes 0 and so on, without
// close-on-exec. Any of them may have a number that another one will get, so all are first
// moved out of the way, together with others, which later steps need. The copies of others are
// returned in the same order.
func (b Block) Install(fds []Arg, others ...Arg) []Arg {
	moved := make([]Arg, 0, len(fds)+len(others))
	for _, fd := range fds {
		moved = append(moved, b.MoveAbove(fd, len(fds)))
	}
	for _, fd := range others {
		moved = append(moved, b.MoveAbove(fd, len(fds)))
	}
	for i := range fds {
		b.Dup3(moved[i], i)
	}
	return moved[len(fds):]
}

// Mkdirat makes a folder.
func (b Block) Mkdirat(dir Arg, path string, perm uint32) {
	b.Call("mkdirat", dir, Str(path), mode(perm))
}

// Mknodat makes a file of any type; an ordinary user can make regular files (S_IFREG), fifos
// and sockets.
func (b Block) Mknodat(dir Arg, path string, perm uint32, device uint64) {
	b.Call("mknodat", dir, Str(path), mode(perm), Const(device))
}

// Symlinkat makes a symbolic link to target.
func (b Block) Symlinkat(target string, dir Arg, path string) {
	b.Call("symlinkat", Str(target), dir, Str(path))
}

// Chdir changes the working folder.
func (b Block) Chdir(path string) { b.Call("chdir", Str(path)) }

// Fchdir changes the working folder to a descriptor.
func (b Block) Fchdir(fd Arg) { b.Call("fchdir", fd) }

// Umask sets the umask.
func (b Block) Umask(mask uint32) { b.Call("umask", mode(mask)) }

// Ioctl makes an ioctl that takes an address; the bytes are printed as note.
func (b Block) Ioctl(fd Arg, request uint64, name string, data []byte, note string) {
	b.Call("ioctl", fd, Named(request, name), Bytes(data, note))
}

// LoopbackUp brings up the loopback interface of the network namespace. The kernel gives it
// 127.0.0.1 and ::1 by itself.
func (b Block) LoopbackUp() {
	const (
		ifUpAndRunning = 0x1 | 0x40
		offsetFlags    = 16 // after the name
		sizeofIfreq    = 40
	)
	request := make([]byte, sizeofIfreq)
	copy(request, "lo")
	binary.LittleEndian.PutUint16(request[offsetFlags:], ifUpAndRunning)
	fd := b.CallResult("socket", Named(2, "AF_INET"), Named(2|socketCloexec, "SOCK_DGRAM|SOCK_CLOEXEC"), Const(0))
	b.dependent().Ioctl(fd, ioctlSetIfFlags, "SIOCSIFFLAGS", request, `{ifr_name="lo", ifr_flags=IFF_UP|IFF_RUNNING}`)
	b.Close(fd)
}
