//go:build amd64 || arm64

package notify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Broker answers the calls of one sandbox.
type Broker struct {
	config Config
	done   chan struct{} // closed when there is nothing more to answer
	once   sync.Once
	thread *thread // nil before Attend
	// waiting are those who end the opens of FIFOs, which wait for the other end, and
	// opening counts these. They may outlast the broker, as dialing.
	waiting sync.WaitGroup
	opening atomic.Int32

	denials denials.Log
	// asks has the calls that wait for somebody's answer; nil if nobody is asked.
	asks *asks

	// dialing counts the connects that wait. They may outlast the broker, and answer
	// only while it is open.
	dialing  atomic.Int32
	open     sync.RWMutex
	closed   bool
	networks networks
	names    names

	// The rest belongs to the thread, or to who has locked it.
	socket int   // where the listener will come from, or -1
	fd     int   // the listener, or -1
	err    error // why there is no listener
	begun  bool  // config is known
	over   bool  // there is nothing more to answer

	root         int // the sandbox's root folder, -1 until the first call
	umask        int // -1 until it is known
	umaskChanged bool
	domains      domains
	hiding       hiding
	lock         changeLock
	// procs says which file systems are procfs, by their device.
	procs map[uint64]bool
}

// Serve makes a broker of the calls that come in on the listener, which it takes
// over. Begin sets the rules; Attend then starts answering, until Close. Calls that
// come before wait.
func Serve(listener int) *Broker {
	setSync(listener)
	return newBroker(-1, listener)
}

// Await is Serve for a listener that will be received on the socket, which it
// takes over: the command need not wait until somebody has received it. It may run
// already, so what to hold has to be known.
func Await(socket int, config Config) (*Broker, error) {
	b := newBroker(socket, -1)
	if err := b.hold(config); err != nil {
		b.closeSource()
		return nil, err
	}
	return b, b.attach()
}

func newBroker(socket, listener int) *Broker {
	return &Broker{socket: socket, fd: listener, root: -1, umask: -1, done: make(chan struct{})}
}

// Begin says what the broker holds, and the mask for new files that the command begins
// with, -1 if that is not known. It comes before the command can run, and before
// Attend.
func (b *Broker) Begin(config Config, umask int) error {
	b.umask = umask
	return b.hold(config)
}

func (b *Broker) hold(config Config) error {
	b.config = config
	err := b.startAsking()
	b.begun = err == nil
	return err
}

// Attend gives a broker that has none its thread. Without one nothing is answered
// any more, and so nothing is allowed; Close tells why.
func (b *Broker) Attend() {
	if b.thread != nil || b.err != nil {
		return
	}
	if err := b.attach(); err != nil {
		b.err, b.socket, b.fd = err, -1, -1
		b.end()
	}
}

// source is the descriptor that the thread has to wait for, or -1.
func (b *Broker) source() int32 {
	switch {
	case b == nil || b.over:
		return -1
	case b.fd >= 0:
		return int32(b.fd)
	}
	return int32(b.socket)
}

// wakes is the descriptor that tells of calls to handle once more, or -1.
func (b *Broker) wakes() int32 {
	if b == nil {
		return -1
	}
	return b.asks.wakes()
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
		b.answer()
	default: // no process is left
		b.end()
	}
}

// receiveListener takes the listener from the socket. Where the other end was
// closed before, the program has an error of its own.
func (b *Broker) receiveListener() {
	fd, err := ReceiveListener(b.socket)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			b.err = err
		}
		b.end()
		return
	}
	setSync(fd)
	b.fd = fd
}

// answer answers a call. Its process may have been killed meanwhile.
func (b *Broker) answer() {
	var n notification
	switch err := b.receive(&n); {
	case err == nil:
		b.callOf(&n).handle()
	case !errors.Is(err, unix.ENOENT) || b.abandoned():
		b.end()
	}
}

func (b *Broker) callOf(n *notification) *call {
	return &call{b: b, id: n.id, pid: int(n.pid), nr: int(n.nr), args: n.args}
}

// end notes that there is nothing more to answer.
func (b *Broker) end() {
	if !b.over {
		b.over = true
		close(b.done)
	}
}

// Close ends the broker: nothing is answered any more, and what was refused is
// known. The error is why there was nothing to answer. Free has to follow.
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
		b.names.close()
		b.networks.close()
		b.waiting.Wait()
		b.endHiding()
	})
	return b.err
}

// Free lets go of what a broker that is closed still holds, which takes the kernel
// a while. Calls that still wait fail: their processes are gone, or no longer
// matter.
func (b *Broker) Free() {
	b.closeSource() // calls that wait get ENOSYS
	for _, d := range b.domains.byMark {
		d.close()
	}
	if b.root >= 0 {
		unix.Close(b.root)
	}
	b.lock.close()
}

func (b *Broker) closeSource() {
	for _, fd := range []int{b.socket, b.fd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Denied returns what was refused, in the order in which it first happened, and
// how many more there were than are kept.
func (b *Broker) Denied() (list []plan.Denial, dropped int) { return b.denials.All() }

// isolateThread gives the thread a umask of its own, which is none, so that
// permissions are exactly what a process asked for, and keeps signals away: one
// that comes while a descriptor is handed out makes the kernel repeat the call,
// which then finds it answered.
//
// It also gives up the capabilities that the command does not have: of the files that the
// broker opens for it, many of the kernel's show more to who has them.
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

// limitCapabilities gives up all capabilities of the thread but those over files, and
// these too unless it is root's.
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

// privileged reports whether the command has all capabilities that the broker has.
func (b *Broker) privileged() bool { return b.config.Plan != nil && b.config.Plan.Privileged }

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
	if v.OnlyReads() {
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
