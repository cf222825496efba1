//go:build windows

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// sigCont does not exist on Windows; sending it does nothing.
const sigCont = syscall.Signal(0x12)

func sysProcAttr() *syscall.SysProcAttr { return nil }

// killGroup kills only the process: its children live on.
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

// Forward prevents an interrupt from ending this process before the command, which gets the
// interrupt from the console itself. stop ends that.
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

// Forward does nothing: the command gets interrupts from the console.
func (c *Catcher) Forward(*Process) {}

// Stop stops catching interrupts.
func (c *Catcher) Stop() { c.stop.Do(func() { signal.Stop(c.signals) }) }
