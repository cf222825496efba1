//go:build amd64 || arm64

package notify

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Broker answers the calls of one sandbox.
type Broker struct {
	config Config
	fd     int      // the listener
	file   *os.File // owns fd
	stop   int      // an eventfd that ends the loop
	done   chan struct{}
	once   sync.Once
	// waiting are the opens of FIFOs, which wait for the other end.
	waiting sync.WaitGroup
	began   time.Time

	denials denials.Log
	// asks has the calls that wait for somebody's answer; nil if nobody is asked.
	asks *asks

	// dialing counts the connects that wait. They may outlast the broker, and answer
	// only while it is open.
	dialing  atomic.Int32
	open     sync.RWMutex
	closed   bool
	networks networks

	// The rest belongs to the loop.
	root         int // the sandbox's root folder, -1 until the first call
	umask        int // -1 until it is known
	umaskChanged bool
	// domains are the processes that have entered a Landlock domain, and main is
	// the command: see findDomain.
	domains map[int]*domain
	main    int
	hiding  hiding
}

// Serve answers the calls that come in on the listener, which it takes over,
// until Close.
func Serve(listener int, config Config) (*Broker, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(listener)
		return nil, os.NewSyscallError("eventfd", err)
	}
	setSync(listener)
	// The runtime waits for the first call, so that a command that makes none costs
	// no thread.
	_ = unix.SetNonblock(listener, true)
	b := &Broker{config: config, fd: listener, file: os.NewFile(uintptr(listener), "listener"), stop: stop, root: -1, umask: -1, began: time.Now(), done: make(chan struct{})}
	if err := b.startAsking(); err != nil {
		unix.Close(stop)
		b.file.Close()
		return nil, err
	}
	go b.serve()
	return b, nil
}

// serve answers all calls. Where there need not be any, the first is awaited
// without a thread.
func (b *Broker) serve() {
	defer close(b.done)
	if b.config.Records == policy.RecordChanges && !b.awaitFirst() {
		return
	}
	if err := isolated(b.loop); err != nil {
		b.file.Close() // whoever calls gets ENOSYS: what cannot be judged does not happen
	}
}

// awaitFirst waits for the first call. It is false if there is none before
// Close, or before the last process ends.
func (b *Broker) awaitFirst() bool {
	called := false
	conn, err := b.file.SyscallConn()
	if err != nil {
		return true // the loop can wait as well
	}
	err = conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		called = p[0].Revents&unix.POLLIN != 0
		return err == nil && n > 0
	})
	if errors.Is(err, os.ErrNoDeadline) {
		return true
	}
	return called
}

// Close ends the broker. Calls that still wait fail: their processes are gone,
// or no longer matter.
func (b *Broker) Close() {
	b.once.Do(func() {
		_, _ = unix.Write(b.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		_ = b.file.SetReadDeadline(time.Unix(1, 0))
		<-b.done
		b.asks.close()
		b.open.Lock()
		b.closed = true
		b.file.Close() // calls that wait get ENOSYS
		b.open.Unlock()
		b.networks.close()
		b.waiting.Wait()
		b.endHiding()
		for _, d := range b.domains {
			d.close()
		}
		unix.Close(b.stop)
		if b.root >= 0 {
			unix.Close(b.root)
		}
	})
}

// Denied returns what was refused, in the order in which it first happened, and
// how many more there were than are kept.
func (b *Broker) Denied() (list []plan.Denial, dropped int) { return b.denials.All() }

// loop runs in a thread of its own: the thread's umask is none, so that
// permissions are exactly what a process asked for.
func (b *Broker) loop() {
	var n notification
	for b.next() && b.receive(&n) {
		c := &call{b: b, id: n.id, pid: int(n.pid), nr: int(n.nr), args: n.args}
		c.handle()
	}
}

// isolateThread gives the thread a umask of its own, and keeps signals away: one
// that comes while a descriptor is handed out makes the kernel repeat the call,
// which then finds it answered.
func isolateThread() error {
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
	return nil
}

// next waits until there is a call. It is false when the broker is to end.
// Receiving right away would wait for ever, before Linux 6.11, once no process
// is left.
func (b *Broker) next() bool {
	for {
		p := []unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}, {Fd: int32(b.stop), Events: unix.POLLIN}, {Fd: b.asks.wakes(), Events: unix.POLLIN}}
		_, err := unix.Poll(p, -1)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || p[1].Revents != 0:
			return false
		case p[2].Revents != 0:
			b.asks.replay()
		case p[0].Revents&unix.POLLIN != 0:
			return true
		case p[0].Revents != 0: // no process is left
			return false
		}
	}
}

// guards reports whether the broker makes the changes of a path: it lies in a
// guarded folder, or was given while the command runs.
func (b *Broker) guards(path string) bool {
	return withinAny(b.config.Roots, path) || b.asks.gave(path)
}

func withinAny(roots []string, path string) bool {
	for _, r := range roots {
		if pathx.Within(r, path) {
			return true
		}
	}
	return false
}

// allows judges a change of a path in a guarded folder. Where it may not be, the
// refusal is recorded and answered.
func (c *call) allows(op plan.Op, path string) bool {
	v := c.b.config.Judge().Path(path)
	if v.Access == policy.Write {
		return true
	}
	c.refuse(op, path, v)
	return false
}

// permits judges, and records a refusal, which the caller has to answer.
func (c *call) permits(op plan.Op, path string) bool {
	v := c.b.config.Judge().Path(path)
	if v.Access == policy.Write {
		return true
	}
	c.record(op, path, v)
	return false
}

// stays answers a call that would take a file away from where a rule is about
// it. The kernel refuses to move a mount point only to those who see the mount,
// which the broker does not.
func (c *call) stays(op plan.Op, path string) bool {
	v, pinned := c.b.config.Judge().Pinned(path)
	if pinned {
		c.record(op, path, v)
		c.fail(unix.EBUSY)
	}
	return pinned
}

// refuse records and answers a refusal, unless somebody is asked first.
func (c *call) refuse(op plan.Op, path string, v plan.Verdict) {
	if c.asksFirst(op, path, v) {
		return
	}
	c.record(op, path, v)
	if v.Rule == "paths.read" {
		c.fail(unix.EROFS) // as the kernel says of a mount
	} else {
		c.fail(unix.EACCES)
	}
}

// outside lets the kernel run a call whose path is in no guarded folder, and
// records it if the kernel is going to refuse it.
func (c *call) outside(op plan.Op, path string) {
	if v := c.b.config.Judge().Path(path); v.Access != policy.Write {
		if c.asksFirst(op, path, v) {
			return
		}
		c.record(op, path, v)
	}
	c.resume()
}
