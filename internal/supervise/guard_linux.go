package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/notify"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A guard is the broker of one run: it comes to life when the launched program
// hands its listener over.
type guard struct {
	socket int
	spec   *Spec
	done   chan struct{} // closed when broker and err are final
	broker *notify.Broker
	err    error

	// begun is closed when the spec is there, ended when there will be none; nil
	// where it is there from the start.
	begun, ended chan struct{}

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
	c.guard = guardFor(spec, d)
}

// guardFor is the guard that startGuard gives a child, or nil if nothing is to be
// judged. Where the program itself executes the command, which is one of the calls
// that wait, it has to be there before the program runs.
func guardFor(spec *Spec, d *descriptors) *guard {
	if d.listener <= 0 {
		return nil
	}
	g := &guard{socket: d.listener, done: make(chan struct{})}
	g.spec = spec
	d.listener = 0
	go g.receive()
	return g
}

func (g *guard) receive() {
	defer close(g.done)
	defer unix.Close(g.socket)
	listener, err := notify.ReceiveListener(g.socket)
	if err != nil {
		if !errors.Is(err, io.EOF) { // the program ended before: it has its own error
			g.err = err
		}
		return
	}
	g.serve(listener)
}

// guardOn is a guard whose listener is there. The spec comes later, with begin; the
// init that awaits its command asks nothing.
func guardOn(listener int) *guard {
	g := &guard{done: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(g.done)
		select {
		case <-g.begun:
			g.serve(listener)
		case <-g.ended:
			unix.Close(listener)
		}
	}()
	return g
}

// begin tells a guard of guardOn what the command is, before that can run.
func (g *guard) begin(spec *Spec) {
	if g != nil {
		g.spec = spec
		close(g.begun)
	}
}

// serve takes the listener over.
func (g *guard) serve(listener int) {
	spec := g.spec
	if spec.Launch.Guard.Records == policy.RecordChanges {
		var asked bool
		if listener, asked = g.asked(listener); !asked {
			return
		}
	}
	l := spec.Launch
	g.broker, g.err = notify.Serve(listener, notify.Config{
		Judge: sync.OnceValue(spec.Plan.Judge), Masks: sync.OnceValue(spec.Plan.Masks), Plan: spec.Plan, Asks: spec.asks(), Tracked: spec.Tracked,
		Roots: l.Guard.Roots, Reads: l.Guard.Reads, Records: l.Guard.Records,
	})
}

// asks is who the broker asks, or nil.
func (s *Spec) asks() *notify.Asks {
	if s.Ask == nil {
		return nil
	}
	return &notify.Asks{Plan: s.Plan, Ask: func(ctx context.Context, d plan.Denial) (notify.Given, bool) {
		line, until, ok := s.Ask(ctx, d)
		return notify.Given{Path: line, Until: until}, ok
	}}
}

// asked waits until the first call is to be answered; it is false if the run ends
// before. A broker has a thread of its own, and commands whose reads are not looked
// at seldom need it: until then the runtime's poller watches. It takes the listener over and returns
// another descriptor of it.
func (g *guard) asked(listener int) (fd int, asked bool) {
	_ = unix.SetNonblock(listener, true) // or the poller would not take it
	f := os.NewFile(uintptr(listener), "listener")
	defer f.Close()
	if !g.watch(f) || !g.readable(f) {
		return -1, false
	}
	fd, err := unix.FcntlInt(uintptr(listener), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		g.err = os.NewSyscallError("dup", err)
	}
	return fd, err == nil
}

// readable waits until there is something to answer, or until it is told that
// there will not be.
func (g *guard) readable(f *os.File) bool {
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
	if g.ended != nil && !g.over {
		close(g.ended)
	}
	g.over = true
	if g.quiet != nil {
		_ = g.quiet.SetReadDeadline(time.Unix(1, 0)) // if it cannot be set, nobody waits
	}
}

// end stops the broker once the run is over, and returns what it refused and how
// many more there were.
func (g *guard) end() (denied []plan.Denial, more int, err error) {
	if g == nil {
		return nil, 0, nil
	}
	g.finish()
	<-g.done
	if g.broker == nil {
		return nil, 0, g.err
	}
	g.broker.Close()
	denied, more = g.broker.Denied()
	return denied, more, nil
}
