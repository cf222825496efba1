package supervise

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

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

	mu    sync.Mutex
	quiet *os.File // the listener, as long as nothing was asked
	over  bool     // the run has ended
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
	if !g.asked(listener) {
		unix.Close(listener)
		return
	}
	l := spec.Launch
	g.broker, g.err = notify.Serve(listener, notify.Config{Judge: sync.OnceValue(spec.Plan.Judge), Roots: l.Guard.Roots, Reads: l.Guard.Reads})
}

// asked waits until the first call is to be answered; it is false if the run ends
// before. A broker has a thread of its own, and most commands never need it: until
// then the runtime's poller watches.
func (g *guard) asked(listener int) bool {
	fd, err := unix.FcntlInt(uintptr(listener), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return true
	}
	_ = unix.SetNonblock(fd, true) // or the poller would not take it
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if !g.watch(f) {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return true
	}
	poll := []unix.PollFd{{Events: unix.POLLIN}}
	err = raw.Read(func(fd uintptr) bool {
		poll[0].Fd = int32(fd)
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	g.watch(nil)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case err != nil:
		return true
	}
	return poll[0].Revents&unix.POLLIN != 0 // or nobody is left who could ask
}

// watch notes which file asked waits for, and reports whether it is to.
func (g *guard) watch(f *os.File) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet = f
	return !g.over
}

// finish ends asked.
func (g *guard) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	if g.quiet != nil {
		_ = g.quiet.SetReadDeadline(time.Unix(1, 0)) // if it cannot be set, nobody waits
	}
}

// end stops the broker once the run is over, and returns what it refused.
func (g *guard) end() ([]plan.Denial, error) {
	if g == nil {
		return nil, nil
	}
	g.finish()
	<-g.done
	if g.broker == nil {
		return nil, g.err
	}
	g.broker.Close()
	list, _ := g.broker.Denied()
	return list, nil
}
