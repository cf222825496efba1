//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// replaceProcess executes a program in the place of this one. It returns only if
// it could not.
func replaceProcess(path string, args []string, kept ...int) error {
	for _, fd := range kept {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0)
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, args, os.Environ()))
}

// openReport refuses a file whose name is a symbolic link, and does not wait for
// a reader of a FIFO: an earlier command could have left either in the workspace.
const openReport = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// inheritedFile is a descriptor that cloche was started with. It does not pass
// on to the command, which could otherwise write a report of its own.
func inheritedFile(fd int) (*os.File, error) {
	if fd < 1 {
		return nil, errors.New("name a descriptor that is open for writing, from 1 on")
	}
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return nil, fmt.Errorf("the descriptor is not open (%w); open it first, as in the shell: cloche run --report-fd %d … %d>report.json", err, fd, fd)
	}
	if fd > 2 {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", fd)), nil
}
