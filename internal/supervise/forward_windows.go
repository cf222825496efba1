package supervise

import (
	"os"
	"os/signal"
	"sync"
)

// Forward keeps an interrupt from ending this process before the command, which
// gets it from the console itself. stop ends that.
func Forward(p *Process) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	return sync.OnceFunc(func() { signal.Stop(signals) })
}
