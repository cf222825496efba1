//go:build windows

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"sync"
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

// Forward keeps an interrupt from ending this process before the command, which
// gets it from the console itself. stop ends that.
func Forward(*Process) (stop func()) { return Catch().Stop }

// A Catcher catches interrupts for a run that is about to start.
type Catcher struct {
	signals chan os.Signal
	stop    sync.Once
}

// Catch is [Forward] for a caller whose run is about to start.
func Catch() *Catcher {
	c := &Catcher{signals: make(chan os.Signal, 1)}
	signal.Notify(c.signals, os.Interrupt)
	return c
}

// Forward does nothing more: the run has the console, too.
func (c *Catcher) Forward(*Process) {}

// Stop ends the catching.
func (c *Catcher) Stop() { c.stop.Do(func() { signal.Stop(c.signals) }) }
