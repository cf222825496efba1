//go:build amd64 || arm64

package notify

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A thread answers the calls of brokers, of one at a time. To make one, and to let
// it end, costs as much as some ten calls that are answered, and to wake one as
// much as several: so a thread outlasts its brokers, it waits in one system call
// for all that can happen, and a broker whose command has ended leaves it without
// waking it.
type thread struct {
	wake int // an eventfd: what to wait for has changed
	// privileged: it has all capabilities, for a command that has them too.
	privileged bool

	// mu is held while a call is answered: who has it can take the broker away.
	mu     sync.Mutex
	broker *Broker // nil while nobody needs the thread
	ends   bool
}

// maxIdle is how many threads are kept while no broker needs them.
const maxIdle = 2

var idle = make(chan *thread, maxIdle)

// attach gives the broker a thread. Without one it lets go of what it has taken
// over: nothing is answered then, and so nothing is allowed.
func (b *Broker) attach() error {
	if !b.privileged() {
		select {
		case b.thread = <-idle:
		default:
		}
	}
	if b.thread == nil {
		t, err := newThread(b.privileged())
		if err != nil {
			b.asks.close()
			b.closeSource()
			return err
		}
		b.thread = t
	}
	b.thread.serve(b)
	return nil
}

// detach takes the broker's thread away from it: when it returns no call is being
// answered, and none will be.
func (b *Broker) detach() {
	t := b.thread
	t.serve(nil)
	if !t.privileged {
		select {
		case idle <- t:
			return
		default:
		}
	}
	t.mu.Lock()
	t.ends = true
	t.mu.Unlock()
	t.rouse()
}

// newThread starts a thread that isolateThread has prepared.
func newThread(privileged bool) (*thread, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	t := &thread{wake: wake, privileged: privileged}
	ready := make(chan error)
	go t.run(ready)
	if err := <-ready; err != nil {
		unix.Close(wake)
		return nil, err
	}
	return t, nil
}

// serve makes the thread answer the calls of another broker, or of none. A broker
// that has nothing more to answer is not waited for any more, so that there is no
// need to wake the thread.
func (t *thread) serve(b *Broker) {
	t.mu.Lock()
	waits := b != nil || t.broker.source() >= 0
	t.broker = b
	t.mu.Unlock()
	if waits {
		t.rouse()
	}
}

// rouse makes the thread look again what it waits for.
func (t *thread) rouse() { _, _ = unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (t *thread) run(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this
	err := isolateThread(t.privileged)
	ready <- err
	if err != nil {
		return
	}
	for t.turn() {
	}
	unix.Close(t.wake)
}

// turn waits until something happens, and handles it. It is false at the end.
func (t *thread) turn() bool {
	t.mu.Lock()
	b, ends := t.broker, t.ends
	fds := []unix.PollFd{{Fd: int32(t.wake), Events: unix.POLLIN}, {Fd: b.source(), Events: unix.POLLIN}, {Fd: b.wakes(), Events: unix.POLLIN}}
	t.mu.Unlock()
	if ends {
		return false
	}
	if _, err := unix.Poll(fds, -1); err != nil {
		return true // EINTR; a descriptor that is gone is no error
	}
	if fds[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(t.wake, count[:])
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b != nil && t.broker == b {
		b.happened(fds[1].Revents, fds[2].Revents != 0)
	}
	return true
}
