//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const sigCont = unix.SIGCONT

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// killGroup kills the process group. A process that has left the group is not found.
func killGroup(proc *os.Process) {
	if proc.Pid > 1 { // -1 would mean every process of the user
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

// maxRSS returns the largest resident size. On Darwin, the kernel reports it in bytes.
func maxRSS(state *os.ProcessState) int64 {
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(u.Maxrss)
	}
	return 0
}

// parentOf is not implemented here. A process whose parent is in the same group therefore
// counts as orphaned, and does not stop.
func parentOf(int) int { return 0 }
