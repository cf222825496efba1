//go:build amd64 || arm64

package notify

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A thread answers the calls of brokers, one broker at a time. Making and ending a thread
// costs as much as some ten answered calls, and waking one as much as several. So a thread
// outlasts its brokers, waits in one system call for everything that can happen, and is not
// woken by a broker that leaves it because the command has ended.
type thread struct {
	wake int // an eventfd: what to wait for has changed
	// privileged: it has all capabilities, for a command that has them too.
	privileged bool

	// mu is held while a call is answered. Whoever has it can take the broker away.
	mu     sync.Mutex
	broker *Broker // nil while nobody needs the thread
	ends   bool
}

// maxIdle is how many threads are kept while no broker needs them.
const maxIdle = 2

var idle = make(chan *thread, maxIdle)

// attach gives the broker a thread. Without one it closes what it has taken over: nothing is
// answered then, and so nothing is allowed.
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

// detach takes the broker's thread away from it. When it returns no call is being answered,
// and none will be.
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

// serve makes the thread answer the calls of another broker, or of none. It need not wake the
// thread from a broker that has nothing more to answer.
func (t *thread) serve(b *Broker) {
	t.mu.Lock()
	waits := b != nil || t.broker.source() >= 0
	t.broker = b
	t.mu.Unlock()
	if waits {
		t.rouse()
	}
}

// rouse makes the thread check again what it waits for.
func (t *thread) rouse() { addToEventfd(t.wake) }

func addToEventfd(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (t *thread) run(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this goroutine
	err := isolateThread(t.privileged)
	ready <- err
	if err != nil {
		return
	}
	for t.turn() {
	}
	unix.Close(t.wake)
}

// turn waits until something happens, and handles it. It returns false at the end.
func (t *thread) turn() bool {
	t.mu.Lock()
	b, ends := t.broker, t.ends
	b.catchUp()
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

// isolateThread gives the thread a umask of its own, which is none, so that permissions are
// exactly what a process asked for. It blocks signals: one that comes while a descriptor is
// handed over makes the kernel repeat the call, which then finds it answered.
//
// It also gives up the capabilities that the command does not have: many files of the kernel
// show more to a process with capabilities.
func isolateThread(privileged bool) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare(CLONE_FS): %w", err)
	}
	unix.Umask(0)
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	if privileged {
		return nil
	}
	if err := limitCapabilities(); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}

// fileCapabilities are those that a command of root has, in its own user namespace. The
// owner of a user namespace may trace its processes without any.
const fileCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER

// limitCapabilities gives up all capabilities of the thread but those over files, and these
// too unless it is root's.
func limitCapabilities() error {
	keep := uint32(0)
	if os.Geteuid() == 0 {
		keep = fileCapabilities
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // the second has those from 32 on
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	keep &= sets[0].Permitted
	sets = [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	return unix.Capset(&header, &sets[0])
}
