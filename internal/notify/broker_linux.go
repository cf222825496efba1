//go:build amd64 || arm64

package notify

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/plan"
)

// A Broker answers the calls of one sandbox.
type Broker struct {
	config Config
	done   chan struct{} // closed when there is nothing more to answer
	once   sync.Once
	thread *thread // nil before Attend

	denials denials.Log
	// asks has the calls that wait for somebody's answer; nil if nobody is asked.
	asks *asks

	// opening counts opens of FIFOs, and dialing connects, that wait for another process.
	// Both may outlast the broker, and answer only while it is not closed. releasing are the
	// goroutines that end the waits for FIFOs.
	opening, dialing atomic.Int32
	releasing        sync.WaitGroup
	open             sync.RWMutex // held for reading by a late answer
	closed           bool
	networks         networks
	nameServers      nameServers

	// The rest belongs to the thread, or to the goroutine that has locked it.
	socket int   // where the listener will come from, or -1
	fd     int   // the listener, or -1
	err    error // why there is no listener
	begun  bool  // config is known
	over   bool  // there is nothing more to answer
	left   *call // what AnswerUntil has left to the thread, or nil

	root         int // the sandbox's root directory, -1 until the first call
	umask        int // of the last call, -1 until one is known
	umaskChanged bool
	turns        turns
	callers      callers
	domains      domains
	attempts     attempts
	lock         changeLock
	// procs says which file systems are procfs, by their device.
	procs map[uint64]bool
}

// Serve returns a broker for the calls of a listener, which it takes over. Calls wait until
// Begin has set the rules and Attend starts to answer them, until Close.
func Serve(listener int) *Broker {
	b := newBroker(-1, listener)
	b.turns.begin(listener)
	return b
}

// Await is Serve for a listener that will be received on the socket, which it takes over. The
// command need not wait until somebody has received the listener, and may run already: so the
// rules are set from the start.
func Await(socket int, config Config) (*Broker, error) {
	b := newBroker(socket, -1)
	if err := b.setRules(config); err != nil {
		b.closeSource()
		return nil, err
	}
	return b, b.attach()
}

func newBroker(socket, listener int) *Broker {
	return &Broker{socket: socket, fd: listener, root: -1, umask: -1, done: make(chan struct{})}
}

// Begin sets the rules, and the umask that the command begins with, -1 if that is not known.
// It comes before the command can run, and before Attend.
func (b *Broker) Begin(config Config, umask int) error {
	b.umask = umask
	return b.setRules(config)
}

func (b *Broker) setRules(config Config) error {
	b.config = config
	err := b.startAsking()
	b.begun = err == nil
	return err
}

// Done returns a channel that is closed when the broker has nothing more to answer: the last
// process of the sandbox is gone, or Close was called.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Denied returns what was denied, in the order in which it first happened, and how many more
// there were than are kept.
func (b *Broker) Denied() (list []plan.Denial, dropped int) { return b.denials.All() }

// Close ends the broker: nothing is answered any more, and all denials are known. The error is
// why there was nothing to answer. Free has to follow.
func (b *Broker) Close() error {
	b.once.Do(func() {
		if b.thread != nil {
			b.detach()
		}
		b.end()
		b.asks.close()
		b.open.Lock()
		b.closed = true
		b.open.Unlock()
		b.nameServers.close()
		b.networks.close()
		b.releasing.Wait()
		b.finishAttempts()
	})
	return b.err
}

// Free closes what a closed broker still has open, which takes the kernel a while. Calls that
// still wait fail: their processes are gone, or no longer matter.
func (b *Broker) Free() {
	b.closeSource() // calls that wait get ENOSYS
	for _, d := range b.domains.byMark {
		d.close()
	}
	if b.root >= 0 {
		unix.Close(b.root)
	}
	b.callers.close()
	b.lock.close()
}

func (b *Broker) closeSource() {
	for _, fd := range []int{b.socket, b.fd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// privileged reports whether the command has all capabilities that the broker has.
func (b *Broker) privileged() bool { return b.config.Plan != nil && b.config.Plan.Privileged }

// end notes that there is nothing more to answer.
func (b *Broker) end() {
	if !b.over {
		b.over = true
		close(b.done)
	}
}

// answerLate answers from a goroutine, unless the broker has been closed.
func (b *Broker) answerLate(answer func()) {
	b.open.RLock()
	defer b.open.RUnlock()
	if !b.closed {
		answer()
	}
}

// Attend gives a broker its thread, if it has none. Without one nothing is answered, and so
// nothing is allowed; Close returns why.
func (b *Broker) Attend() {
	if b.thread != nil || b.err != nil {
		return
	}
	if err := b.attach(); err != nil {
		b.err, b.socket, b.fd = err, -1, -1
		b.end()
	}
}

// AnswerUntil answers calls on the caller's thread until fd is readable, which it reports, or
// until a time. The first call that observeOnly does not handle, and the end of the time, give
// the broker its thread. Most short commands make no such call: with the thread from the start,
// a command of a fast session takes 1.30 instead of 1.23 times as long as without a sandbox.
func (b *Broker) AnswerUntil(fd int, end time.Time) (readable bool) {
	for b.thread == nil && b.asks == nil && b.err == nil { // asks wait for answers on the thread
		left := time.Until(end)
		if left <= 0 {
			break
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: b.source(), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err == unix.EINTR {
			continue
		} else if err != nil {
			break
		}
		if fds[0].Revents != 0 {
			return true
		}
		b.happened(fds[1].Revents, false)
	}
	b.Attend()
	return false
}

// catchUp handles the call that AnswerUntil has left. The thread's lock is held.
func (b *Broker) catchUp() {
	if b != nil && b.left != nil {
		b.left.handle()
		b.left = nil
	}
}

// source is the descriptor that the thread waits for, or -1.
func (b *Broker) source() int32 {
	switch {
	case b == nil || b.over:
		return -1
	case b.fd >= 0:
		return int32(b.fd)
	}
	return int32(b.socket)
}

// wakes is the descriptor that is readable when there are calls to handle again, or -1.
func (b *Broker) wakes() int32 {
	if b == nil || b.asks == nil {
		return -1
	}
	return int32(b.asks.wake)
}

// happened handles what the thread has waited for. Its lock is held.
func (b *Broker) happened(source int16, again bool) {
	switch {
	case again:
		b.asks.replay()
	case source == 0 || b.over:
	case b.fd < 0:
		b.receiveListener()
	case source&unix.POLLIN != 0:
		b.receive()
	default: // no process is left
		b.end()
	}
}

// receiveListener takes the listener from the socket. If the other end was closed before, the
// program has an error of its own.
func (b *Broker) receiveListener() {
	fd, err := ReceiveListener(b.socket)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			b.err = err
		}
		b.end()
		return
	}
	b.turns.begin(fd)
	b.fd = fd
}

// ReceiveListener waits for the descriptor of a filter's listener on a socket. It returns
// io.EOF if the other end is closed before.
func ReceiveListener(socket int) (int, error) {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, size, _, _, err = unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	if n == 0 {
		return -1, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return -1, errors.New("the message has no descriptor")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("the message has no descriptor")
	}
	return fds[0], nil
}

// receive takes a call from the listener and handles it. Its process may have been killed
// meanwhile.
func (b *Broker) receive() {
	var n notification
	_, err := ioctl(b.fd, ioctlReceive, unsafe.Pointer(&n))
	switch {
	case err == nil:
		pid := int(n.pid)
		spread := b.turns.spread(pid, b.callers.note(pid))
		c := &call{b: b, id: n.id, pid: pid, nr: int(n.nr), args: n.args, spread: spread}
		err := c.decide()
		if err == errNeedsThread {
			b.left = c
			b.Attend()
			return
		}
		c.answer(err)
	case !errors.Is(err, unix.ENOENT) || b.abandoned():
		b.end()
	}
}

// abandoned reports whether no process is left under the filter (Linux 5.9).
func (b *Broker) abandoned() bool {
	p := []unix.PollFd{{Fd: int32(b.fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
