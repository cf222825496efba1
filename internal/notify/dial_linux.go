//go:build amd64 || arm64

package notify

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxDialing bounds the connects that wait, each of which has a thread.
	maxDialing = 256
	// dialPause is how often a connect that waits looks whether it still should.
	dialPause = 50 * time.Millisecond
	// restart is ERESTARTSYS: the kernel runs the handler of a signal and then makes
	// the call again, or lets it fail with EINTR, as the handler was set up.
	restart = unix.Errno(512)
)

// dial connects, and answers. The broker's loop never waits: whether a socket does
// is up to the process, at any moment, so a socket that could has another thread.
func (c *call) dial(socket int, to target) {
	if !streams(socket) {
		server, inet := inetAddress(to.raw)
		stands := inet && c.standIn(server)
		err := c.as(func() error { return connect(socket, to.raw) })
		c.recordUnreachable(socket, to.raw, err)
		if stands && err == nil {
			c.asks(socket)
		}
		to.close()
		unix.Close(socket)
		c.finish(err)
		return
	}
	if c.b.dialing.Add(1) > maxDialing {
		c.b.dialing.Add(-1)
		to.close()
		unix.Close(socket)
		c.fail(unix.EAGAIN)
		return
	}
	d := &dialing{call: c, socket: socket, to: to, done: make(chan struct{})}
	if c.domain != nil {
		d.rulesets = duplicates(c.domain.rulesets)
	}
	go d.run()
}

// streams reports whether to connect the socket can take time.
func streams(socket int) bool {
	kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && (kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET)
}

// connect is connect(2) with an address as the process wrote it.
func connect(socket int, raw []byte) error {
	var p unsafe.Pointer
	if len(raw) > 0 {
		p = unsafe.Pointer(&raw[0])
	}
	for {
		_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(socket), uintptr(p), uintptr(len(raw)))
		runtime.KeepAlive(raw)
		switch e {
		case 0:
			return nil
		case unix.EINTR: // a signal for this process
			continue
		}
		return e
	}
}

// A dialing is a connect on a thread of its own.
type dialing struct {
	*call
	socket   int
	to       target
	rulesets []int // of the domain that the process has entered

	mu   sync.Mutex // held to use the socket elsewhere, and to finish
	done chan struct{}
}

func (d *dialing) run() {
	defer d.b.dialing.Add(-1)
	timer := time.AfterFunc(dialPause, d.watch)
	err := d.within(func() error { return connect(d.socket, d.to.raw) })
	d.mu.Lock()
	close(d.done)
	d.mu.Unlock()
	timer.Stop()
	d.late(func() { d.recordUnreachable(d.socket, d.to.raw, err) })
	// Before the answer: a process that closes its socket then may use the port again.
	d.to.close()
	unix.Close(d.socket)
	d.late(func() { d.finish(err) })
}

// within makes the change in the domain of the process, in a thread of its own: the
// domain's usual one cannot wait.
func (d *dialing) within(change func() error) error {
	if len(d.rulesets) == 0 {
		return change()
	}
	own, err := enterDomain(d.rulesets, d.b.privileged())
	if err != nil {
		return err
	}
	defer own.close()
	in := *d.call
	in.domain = own
	return in.as(change)
}

// late answers from another thread than the loop's, unless the broker has ended.
func (d *dialing) late(answer func()) {
	d.b.open.RLock()
	defer d.b.open.RUnlock()
	if !d.b.closed {
		answer()
	}
}

// watch ends the waiting when the process is gone or has a signal to handle. As
// without a broker, a connection that is being made goes on after a signal.
func (d *dialing) watch() {
	tick := time.NewTicker(dialPause)
	defer tick.Stop()
	for answered := false; ; {
		switch ended := d.ended(); {
		case ended || !answered && !d.waits():
			d.giveUp()
			return
		case !answered && signalled(d.pid):
			answered = true
			d.late(func() { d.fail(restart) })
		}
		select {
		case <-d.done:
			return
		case <-tick.C:
		}
	}
}

// giveUp ends a connection that is being made.
func (d *dialing) giveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.done:
	default:
		_ = unix.Shutdown(d.socket, unix.SHUT_RDWR)
	}
}

func (d *dialing) ended() bool {
	d.b.open.RLock()
	defer d.b.open.RUnlock()
	return d.b.closed
}

// waits reports whether the process waits for the answer.
func (d *dialing) waits() (waits bool) {
	d.late(func() { waits = d.valid() })
	return waits
}

// stopping are the signals that stop a process unless it handles them.
const stopping = 1<<(unix.SIGSTOP-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)

// signalled reports whether a thread has a signal to act on which does not end it:
// the kernel keeps it until the call is answered. One for the whole process counts
// only where there is no other thread that could take it, for then the kernel would
// not make the call again but return restart.
func signalled(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	set := func(key string) uint64 {
		_, rest, _ := strings.Cut(string(b), "\n"+key+":\t")
		line, _, _ := strings.Cut(rest, "\n")
		n, _ := strconv.ParseUint(line, 16, 64)
		return n
	}
	pending := set("SigPnd")
	if lastNumber(b, "\nThreads:") == 1 {
		pending |= set("ShdPnd")
	}
	return pending&^set("SigBlk")&(set("SigCgt")|stopping&^set("SigIgn")) != 0
}
