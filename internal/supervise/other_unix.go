//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const sigCont = unix.SIGCONT

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// killGroup kills the process group. A process that left it is not found.
func killGroup(proc *os.Process) {
	if proc.Pid > 1 { // -1 would be every process of the user
		unix.Kill(-proc.Pid, unix.SIGKILL)
	}
}

func signalGroup(proc *os.Process, sig syscall.Signal) error { return unix.Kill(-proc.Pid, sig) }

func (c *child) status(state *os.ProcessState) (code int, sig syscall.Signal) {
	if state == nil {
		return -1, 0
	}
	if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return state.ExitCode(), 0
}

// maxRSS: the unit is the byte on Darwin.
func maxRSS(state *os.ProcessState) int64 {
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(u.Maxrss)
	}
	return 0
}

// parentOf is not known here, which makes a process whose parent shares its
// group count as orphaned: it does not stop.
func parentOf(int) int { return 0 }
