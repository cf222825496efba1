package supervise

import (
	"errors"
	"os"
	"syscall"
)

// sigCont does not exist here; sending it does nothing.
const sigCont = syscall.Signal(0x12)

func sysProcAttr() *syscall.SysProcAttr { return nil }

// killGroup kills the process alone: its children go on.
func killGroup(proc *os.Process) { proc.Kill() }

func signalGroup(proc *os.Process, sig syscall.Signal) error {
	switch sig {
	case syscall.SIGKILL:
		return proc.Kill()
	case syscall.SIGINT:
		return proc.Signal(os.Interrupt)
	}
	return errors.ErrUnsupported
}

func (c *child) status(state *os.ProcessState) (code int, sig syscall.Signal) {
	if state == nil {
		return -1, 0
	}
	return state.ExitCode(), 0
}

func maxRSS(*os.ProcessState) int64 { return 0 }
