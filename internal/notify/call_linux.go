//go:build amd64 || arm64

package notify

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The kernel's structures, from linux/seccomp.h.
type (
	notification struct {
		id    uint64
		pid   uint32 // of the thread, as this process's pid namespace numbers it
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	response struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
	addFD struct {
		id               uint64
		flags            uint32
		source           uint32
		target           uint32
		descriptionFlags uint32
	}
)

const (
	ioctlReceive  = 0xc0502100
	ioctlSend     = 0xc0182101
	ioctlIDValid  = 0x40082102
	ioctlAddFD    = 0x40182103
	ioctlSetFlags = 0x40082104

	// syncWakeUp makes the process and the broker take turns on one processor, so that a
	// call is four times cheaper. Linux 6.6; earlier kernels return EINVAL. See turns.
	syncWakeUp = 1
	// responseContinue lets the kernel run the call.
	responseContinue = 1
	// addFDSend answers the call with the number of the new descriptor. Linux 5.14.
	addFDSend = 2
)

func ioctl(fd int, request uintptr, p unsafe.Pointer) (int, error) {
	for {
		// Adding a descriptor waits for the process, so the Go scheduler has to know.
		n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(p))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return -1, e
	}
}

// A call is one system call that waits for its answer.
//
// A handler returns an error, and handle turns it into the answer: nil is success, an errno
// is that error, and the errors below say what else happens.
type call struct {
	b    *Broker
	id   uint64
	pid  int // of the thread that waits
	nr   int
	args [6]uint64
	// domain is the Landlock domain that the process has entered, or nil.
	domain *domain
	// present: a directory of /proc that was opened before has shown to be the thread's.
	present bool
	// spread: the kernel chooses the processor that the thread goes on at. See turns.
	spread bool
	// alone: no other broker makes a change while this call is handled.
	alone bool
	// opened are descriptors that pathnames of this call begin at. They are closed when the
	// call has been handled.
	opened []int

	// The rest is kept if the call is handled again.
	memory [3]remembered // what was read from the process
	links  []procLink    // what was read of links in /proc/PID
	asked  []string      // the paths that somebody was asked about
}

var (
	// errGoOn lets the kernel run the call.
	errGoOn = errors.New("the kernel runs the call")
	// errAnswered: the call has its answer, or another goroutine will answer it.
	errAnswered = errors.New("the call is answered elsewhere")
	// errAlone: the call has to be handled again, while no other broker makes a change.
	errAlone = errors.New("the call needs the lock for itself")
	// errNeedsThread: the call is more than an observation, and the broker has no thread.
	errNeedsThread = errors.New("the call needs the broker's thread")
	// errUnhandled: the call is not one that observeOnly handles.
	errUnhandled = errors.New("the call is more than an observation")
)

// handle decides about the call and answers it.
func (c *call) handle() { c.answer(c.decide()) }

func (c *call) decide() error {
	c.present = false
	if !c.b.begun {
		return unix.EACCES
	}
	if err := c.denyByFilter(); err != nil {
		return err
	}
	c.translate()
	if err := c.observeOnly(); err != errUnhandled {
		return err
	}
	if c.b.thread == nil {
		return errNeedsThread
	}
	if err := c.openRoot(); err != nil {
		return err
	}
	if !c.findDomain() {
		return unix.EACCES
	}
	return c.locked(func() error {
		defer c.closeOpened()
		return c.dispatch()
	})
}

// denyByFilter denies and records a call that the filter forbids. The filter hands such
// calls over only so that they are recorded.
func (c *call) denyByFilter() error {
	name, rule, ok := seccomp.Denied(c.nr, c.args)
	if !ok {
		return nil
	}
	c.record(plan.OpCall, name, plan.Decision{Rule: judge.RuleCalls, Subject: seccomp.NewNamespaces(name, c.args), Reason: rule.Reason, Origin: builtin(rule.Name)})
	return unix.Errno(rule.Errno)
}

func builtin(name string) policy.Origin {
	return policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: " + name}
}

// observeOnly handles the calls that the kernel runs in any case. They need nothing of what
// the broker has to know to make a change.
func (c *call) observeOnly() error {
	a := c.args
	switch c.nr {
	case unix.SYS_OPENAT:
		// The flags cannot change any more, so the kernel opens for reading at most.
		if a[2]&writeIntent == 0 && !c.b.config.Reads {
			return c.observe(plan.OpRead, int32(a[0]), a[1])
		}
		if c.opensNull(a[1], a[2]) {
			return errGoOn
		}
	case unix.SYS_EXECVE:
		return c.observe(plan.OpExec, unix.AT_FDCWD, a[0])
	case unix.SYS_EXECVEAT:
		return c.observe(plan.OpExec, int32(a[0]), a[1])
	case unix.SYS_FLOCK, unix.SYS_FCNTL:
		return errGoOn // now that the broker has closed what it gave: see giveNew
	}
	return errUnhandled
}

// opensNull reports whether the call opens the null device for writing, as many commands do
// that change nothing else. It is in no guarded directory, so the kernel may run the call: a
// name that is changed meanwhile can be written only where the kernel itself allows it.
func (c *call) opensNull(address, flags uint64) bool {
	const null = "/dev/null"
	mode := flags & unix.O_ACCMODE
	if mode != unix.O_WRONLY && mode != unix.O_RDWR || c.b.config.Masks == nil || !c.b.config.Masks().Writable(null) {
		return false
	}
	name, err := c.text(address)
	return err == nil && name == null && !c.b.guards(null)
}

func (c *call) dispatch() error {
	a := c.args
	switch c.nr {
	case unix.SYS_OPENAT:
		return c.openat(int32(a[0]), a[1], a[2], a[3])
	case unix.SYS_OPENAT2:
		return c.openat2(int32(a[0]), a[1], a[2], a[3])
	case unix.SYS_MKDIRAT:
		return c.mkdir(int32(a[0]), a[1], a[2])
	case unix.SYS_MKNODAT:
		return c.mknod(int32(a[0]), a[1], a[2])
	case unix.SYS_SYMLINKAT:
		return c.symlink(a[0], int32(a[1]), a[2])
	case unix.SYS_UNLINKAT:
		return c.unlink(int32(a[0]), a[1], a[2])
	case unix.SYS_LINKAT:
		return c.link(int32(a[0]), a[1], int32(a[2]), a[3], a[4])
	case unix.SYS_RENAMEAT:
		return c.rename(int32(a[0]), a[1], int32(a[2]), a[3], 0)
	case unix.SYS_RENAMEAT2:
		return c.rename(int32(a[0]), a[1], int32(a[2]), a[3], a[4])
	case unix.SYS_TRUNCATE:
		return c.truncate(a[0], a[1])
	case unix.SYS_BIND:
		return c.bind(int32(a[0]), a[1], a[2])
	case unix.SYS_CONNECT:
		return c.connect(int32(a[0]), a[1], a[2])
	case unix.SYS_SOCKET:
		return c.denyDatagrams()
	case unix.SYS_SOCKETPAIR:
		return c.packetPair()
	case unix.SYS_LANDLOCK_RESTRICT_SELF:
		return c.enterDomain(int32(a[0]))
	case unix.SYS_UMASK:
		c.b.umaskChanged = true
		c.b.callers.changeMask(c.pid)
		return errGoOn
	}
	// The filter hands over no other call. If it did, it could be one that it denies.
	return unix.EPERM
}

// changesFiles reports whether the call may change a file.
func (c *call) changesFiles() bool {
	switch c.nr {
	case unix.SYS_CONNECT, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_UMASK:
		return false
	case unix.SYS_OPENAT:
		return c.args[2]&writeIntent != 0
	}
	return true
}

// renames reports whether the call gives a file another name in place of the one it has.
func (c *call) renames() bool { return c.nr == unix.SYS_RENAMEAT || c.nr == unix.SYS_RENAMEAT2 }

func (c *call) closeOpened() {
	for _, fd := range c.opened {
		unix.Close(fd)
	}
	c.opened = nil
}

// answer answers the call with what a handler returned. A process that is gone needs no
// answer.
func (c *call) answer(err error) {
	r := response{id: c.id}
	switch err {
	case nil:
	case errAnswered:
		return
	case errGoOn:
		r.flags = responseContinue
	default:
		e := unix.EACCES
		_ = errors.As(err, &e)
		r.errno = -int32(e)
	}
	c.send(r)
}

func (c *call) send(r response) {
	if c.spread {
		setFlags(c.b.fd, 0)
		defer setFlags(c.b.fd, syncWakeUp)
	}
	_, _ = ioctl(c.b.fd, ioctlSend, unsafe.Pointer(&r))
}

// valid reports whether the process still waits. Only then does its number mean it.
func (c *call) valid() bool {
	id := c.id
	_, err := ioctl(c.b.fd, ioctlIDValid, unsafe.Pointer(&id))
	return err == nil
}

// give puts a descriptor into the process and answers with its number, after it has closed
// the broker's own. A process that closes the last descriptor of a pipe's end, of a lock, or of
// a program that it wrote may rely on the effect at once. A command that this program starts
// in the same moment still has a copy of the broker's, until it closes what is not its own.
//
// No signal comes between the two steps: the filter lets a process wait for its answer until
// it is killed. The descriptor is then left only to a process that shares the table of
// descriptors with the killed one, once for each of those.
func (c *call) give(fd int, closeOnExec bool) error {
	number, err := c.put(fd, 0, closeOnExec)
	unix.Close(fd)
	if err != nil {
		return err // too many open files, for instance
	}
	c.send(response{id: c.id, value: int64(number)})
	return errAnswered
}

// giveToRead is give for a file that is only read. It answers before it closes the broker's
// descriptor, which spares the process and the broker a fifth of their time.
func (c *call) giveToRead(fd int, closeOnExec bool) error {
	defer unix.Close(fd)
	if _, err := c.put(fd, addFDSend, closeOnExec); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return errAnswered
}

// giveNew is give for a file that the call has created, in one step: the process need not
// wake up twice. The process can go on a moment before the broker's descriptor is
// closed, and that can be seen in two ways. A lock that belongs to the open file stays, and
// the file cannot be executed (ETXTBSY). So the filter hands over every flock, every
// lock of an open file by fcntl, and every execution by name, and the broker handles them after it has
// closed the file. Programs outside of the sandbox do not wait: they could see a file that
// the process has already closed as open, for as long as the broker's thread needs to run again.
func (c *call) giveNew(fd int, closeOnExec bool) error {
	if !c.b.config.handsOverExec() {
		return c.give(fd, closeOnExec)
	}
	return c.giveToRead(fd, closeOnExec)
}

// put puts a descriptor into the process and returns its number there.
func (c *call) put(fd int, flags uint32, closeOnExec bool) (int, error) {
	a := addFD{id: c.id, flags: flags, source: uint32(fd)}
	if closeOnExec {
		a.descriptionFlags = unix.O_CLOEXEC
	}
	number, err := ioctl(c.b.fd, ioctlAddFD, unsafe.Pointer(&a))
	runtime.KeepAlive(&a)
	return number, err
}

// A remembered is what was read from the process at an address: size bytes, or a string if
// size is 0.
type remembered struct {
	address uint64
	size    int
	data    string
	known   bool
}

// A procLink is a link of the process in /proc, and the path that it led to.
type procLink struct{ link, path string }

// readOnce returns what was read before, or reads and remembers it. A call that is handled
// again is judged by the same arguments.
func (c *call) readOnce(address uint64, size int, read func() (string, error)) (string, error) {
	for i := range c.memory {
		m := &c.memory[i]
		if m.known && m.address == address && m.size == size {
			return m.data, nil
		}
		if !m.known {
			data, err := read()
			if err == nil {
				*m = remembered{address: address, size: size, data: data, known: true}
			}
			return data, err
		}
	}
	return read()
}

// text reads a string from the memory of the process.
func (c *call) text(address uint64) (string, error) {
	return c.readOnce(address, 0, func() (string, error) {
		var buf [pathMax]byte
		have := 0
		for have < len(buf) {
			want := min(len(buf)-have, roomAt(address+uint64(have)))
			n, err := c.read(address+uint64(have), buf[have:have+want])
			if err != nil {
				return "", unix.EFAULT
			}
			if end := bytes.IndexByte(buf[have:have+n], 0); end >= 0 {
				return string(buf[:have+end]), nil
			}
			have += n
		}
		return "", unix.ENAMETOOLONG
	})
}

// shortText is how much of a string is read at first. Few paths are longer.
const shortText = 512

// roomAt is how much is read at an address at once: not beyond the end of a page, because the
// next one may not be there.
func roomAt(address uint64) int { return min(shortText, int(pathMax-address%pathMax)) }

// readBoth reads two strings at once, as far as they are short. Of what it cannot read, text
// finds the error.
func (c *call) readBoth(one, two uint64) {
	if c.memory[0].known { // it was, when the call was handled before
		return
	}
	var buf [2 * shortText]byte
	first, second := buf[:roomAt(one)], buf[shortText:][:roomAt(two)]
	local := []unix.Iovec{{Base: &first[0], Len: uint64(len(first))}, {Base: &second[0], Len: uint64(len(second))}}
	remote := []unix.RemoteIovec{{Base: uintptr(one), Len: len(first)}, {Base: uintptr(two), Len: len(second)}}
	n, err := unix.ProcessVMReadv(c.pid, local, remote, 0)
	if err != nil || n != len(first)+len(second) || !c.valid() {
		return
	}
	for i, s := range []struct {
		address uint64
		data    []byte
	}{{one, first}, {two, second}} {
		end := bytes.IndexByte(s.data, 0)
		if end < 0 {
			return
		}
		c.memory[i] = remembered{address: s.address, data: string(s.data[:end]), known: true}
	}
}

// pathText is text for a path, which cannot be empty.
func (c *call) pathText(address uint64) (string, error) {
	text, err := c.text(address)
	if err == nil && text == "" {
		err = unix.ENOENT
	}
	return text, err
}

// bytes reads size bytes from the memory of the process.
func (c *call) bytes(address uint64, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	data, err := c.readOnce(address, size, func() (string, error) {
		buf := make([]byte, size)
		if n, err := c.read(address, buf); err != nil || n < size {
			return "", unix.EFAULT
		}
		return string(buf), nil
	})
	return []byte(data), err
}

// read reads from the memory of the process. While the call waits for the lock, the process may
// end, and a process of the host get its number: what was read counts only if the call still waits.
func (c *call) read(address uint64, into []byte) (int, error) {
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(into)}}
	n, err := unix.ProcessVMReadv(c.pid, local, remote, 0)
	switch {
	case err == nil && n == 0:
		return 0, unix.EFAULT
	case err == nil && !c.valid():
		return 0, unix.ESRCH
	}
	return n, err
}

// write writes into the memory of the process. The memory is opened before the process is
// checked to wait still: its number alone could mean another process by then.
func (c *call) write(address uint64, data []byte) error {
	mem, err := unix.Open(c.proc("mem"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mem)
	if !c.valid() {
		return unix.ESRCH
	}
	n, err := unix.Pwrite(mem, data, int64(address))
	if err == nil && n != len(data) {
		err = unix.EFAULT
	}
	return err
}

// pidfdThread is PIDFD_THREAD, Linux 6.9.
const pidfdThread = unix.O_EXCL

// descriptor takes a descriptor of the process. A thread may have a table of its own; a
// kernel that does not know threads here gives that of the process.
func (c *call) descriptor(fd int32) (int, error) {
	process, err := unix.PidfdOpen(c.pid, pidfdThread)
	if err != nil {
		process, err = unix.PidfdOpen(c.status().tgid, 0)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(process)
	got, err := unix.PidfdGetfd(process, int(fd), 0)
	if err == nil && !c.valid() {
		unix.Close(got)
		return -1, unix.ESRCH
	}
	return got, err
}

// proc is the path of something of the process in the host's /proc.
func (c *call) proc(rest string) string { return "/proc/" + strconv.Itoa(c.pid) + "/" + rest }

// program is the name of the program, for the record.
func (c *call) program() string {
	b, err := os.ReadFile(c.proc("comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// A status has the numbers of a process's thread group and of its parent.
type status struct{ tgid, parent int }

func (c *call) status() status { return statusOf(c.pid) }

func statusOf(pid int) status {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}
	}
	return status{tgid: lastNumber(b, "\nTgid:"), parent: lastNumber(b, "\nPPid:")}
}

// lastField is the last word of the line of a /proc file that begins with key.
func lastField(text []byte, key string) string {
	_, rest, _ := bytes.Cut(text, []byte(key))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return ""
	}
	return fields[len(fields)-1]
}

func lastNumber(text []byte, key string) int {
	n, _ := strconv.Atoi(lastField(text, key))
	return n
}

// numberInside is the number that the innermost pid namespace gives the process ("\nNStgid:")
// or the thread ("\nNSpid:").
func (c *call) numberInside(key string) string {
	b, _ := os.ReadFile(c.proc("status"))
	if number := lastField(b, key); number != "" {
		return number
	}
	return "self"
}

// masked takes the umask, and the bits for setting ids, off a mode.
func (c *call) masked(mode uint64) uint32 { return uint32(mode) & 0o1777 &^ c.umask() }
