package supervise

import (
	"os"
	"os/signal"
	"sync"
)

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
