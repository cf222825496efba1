package supervise

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/notify"
	"github.com/cloche-dev/cloche/plan"
)

// A guard is the broker of one run: it comes to life when the launched program
// hands its listener over.
type guard struct {
	socket int
	done   chan struct{} // closed when broker and err are final
	broker *notify.Broker
	err    error
}

// listenerPair makes the socket for the listener.
func listenerPair() (ours int, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socketpair", err)
	}
	return pair[0], os.NewFile(uintptr(pair[1]), "listener"), nil
}

// startGuard waits for the listener on the socket, which it takes over. The
// launched program sends it before the command runs, and the command's calls
// wait until they are answered.
func (c *child) startGuard(spec *Spec, d *descriptors) {
	if d.listener <= 0 {
		return
	}
	c.guard = &guard{socket: d.listener, done: make(chan struct{})}
	d.listener = 0
	go c.guard.receive(spec)
}

func (g *guard) receive(spec *Spec) {
	defer close(g.done)
	defer unix.Close(g.socket)
	listener, err := notify.ReceiveListener(g.socket)
	if err != nil {
		if !errors.Is(err, io.EOF) { // the program ended before: it has its own error
			g.err = err
		}
		return
	}
	l := spec.Launch
	g.broker, g.err = notify.Serve(listener, notify.Config{Judge: sync.OnceValue(spec.Plan.Judge), Roots: l.Guard.Roots, Reads: l.Guard.Reads})
}

// end stops the broker once the run is over, and returns what it refused.
func (g *guard) end() ([]plan.Denial, error) {
	if g == nil {
		return nil, nil
	}
	<-g.done
	if g.broker == nil {
		return nil, g.err
	}
	g.broker.Close()
	list, _ := g.broker.Denied()
	return list, nil
}
