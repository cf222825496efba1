package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeFromChild makes a pipe that the child writes to. Our end is made
// non-blocking, so that reads can have a deadline; the child's is left alone,
// because a program does not expect EAGAIN from its standard output.
func pipeFromChild() (ours, childs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	_ = unix.SetNonblock(p[0], true)
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// rawPipeFromChild is pipeFromChild for a reader that waits by itself.
func rawPipeFromChild() (ours int, childs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	return p[0], os.NewFile(uintptr(p[1]), "pipe"), nil
}

// pipeToChild makes a pipe that the child reads from.
func pipeToChild() (childs, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	_ = unix.SetNonblock(p[1], true)
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// openNull opens the null device. Package os would try to poll it, which takes
// five more system calls.
func openNull(flag int) (*os.File, error) {
	fd, err := unix.Open(os.DevNull, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil
}
