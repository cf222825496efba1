//go:build amd64 || arm64

package notify

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/gitguard"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const (
	maxAddress = 128 // struct sockaddr_storage
	sunPath    = 2   // where the path begins in struct sockaddr_un
)

// address reads the address of a socket.
func (c *call) address(address, length uint64) ([]byte, error) {
	size := int32(length) // as the kernel takes it
	if size < 0 || size > maxAddress {
		return nil, unix.EINVAL
	}
	return c.bytes(address, int(size))
}

// unixPath is the path in the address of a unix socket.
func unixPath(raw []byte) (string, bool) {
	if len(raw) <= sunPath || binary.NativeEndian.Uint16(raw) != unix.AF_UNIX || raw[sunPath] == 0 {
		return "", false
	}
	text, _, _ := bytes.Cut(raw[sunPath:], []byte{0})
	return string(text), true
}

// abstractName is the abstract name in the address of a unix socket.
func abstractName(raw []byte) (string, bool) {
	if len(raw) <= sunPath || binary.NativeEndian.Uint16(raw) != unix.AF_UNIX || raw[sunPath] != 0 {
		return "", false
	}
	return string(raw[sunPath+1:]), true
}

// bind answers bind(2). Only a unix socket with a path makes a file. In a guarded directory the
// broker binds the process's own socket, which it takes a descriptor of, to the name that it has
// read and judged. The kernel runs all other binds. An address or a descriptor that another
// thread changes meanwhile gains nothing: in guarded directories Landlock does not let the
// process make sockets.
func (c *call) bind(fd int32, address, length uint64) error {
	raw, err := c.address(address, length)
	if err != nil {
		return errGoOn
	}
	name, ok := unixPath(raw)
	if !ok {
		return errGoOn
	}
	p, err := c.pathname(unix.AT_FDCWD, name)
	if err != nil {
		return errGoOn
	}
	at, err := c.locate(p)
	if err != nil {
		return c.failMissing(plan.OpCreate, p.full, err == unix.ENOENT || err == unix.ENOTDIR, err)
	}
	defer at.close()
	if !c.b.guards(at.path()) {
		return c.leaveToKernel(plan.OpCreate, at.path())
	}
	socket, err := c.descriptor(fd)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		return errGoOn // the kernel refuses such an address for it
	}
	switch k, err := at.kind(); {
	case err != nil:
		return err
	case k != missing:
		return unix.EADDRINUSE
	case at.slash:
		return unix.ENOENT
	}
	if err := c.denyUnlessAllowed(plan.OpCreate, at.path()); err != nil {
		return err
	}
	if err := c.denyGitChange(plan.OpCreate, at, nil, gitguard.Change{Op: gitguard.Node}); err != nil {
		return err
	}
	mask := c.umask()
	return c.as(func() error {
		unix.Umask(int(mask)) // of this thread alone, as its working directory
		defer unix.Umask(0)
		defer unix.Chdir("/") //nolint:errcheck // nothing depends on it; this lets go of the sandbox's mount
		return c.bindSocket(socket, at, raw, name)
	})
}

// bindSocket binds a socket to a name in the directory of the place. The kernel keeps the text
// of the address for getsockname. So the name is used as it was given where it leads the broker
// to that very directory, by its own root or the working directory of the process. Elsewhere,
// as where the workspace has another path inside, the socket is bound to the last part of the
// name, which getsockname then returns.
func (c *call) bindSocket(socket int, at *place, raw []byte, name string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at.dir, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY != 0 { // the mount inside, which the name may pass by
		return unix.EROFS
	}
	if !c.leadsBrokerTo(at, name) {
		if err := unix.Fchdir(at.dir); err != nil {
			return err
		}
		raw = append(append(raw[:sunPath:sunPath], at.name...), 0)
	}
	_, _, e := unix.Syscall(unix.SYS_BIND, uintptr(socket), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
	runtime.KeepAlive(raw)
	if e != 0 {
		return e
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.EACCES // somebody outside moved a directory of the path
	}
	return nil
}

// leadsBrokerTo reports whether a name leads this thread to the directory of the place. For a
// relative name, it first changes to the working directory of the process.
func (c *call) leadsBrokerTo(at *place, name string) bool {
	if !strings.HasPrefix(name, "/") && c.enterWorkingDirectory() != nil {
		return false
	}
	dir, last := splitLast(name)
	if last != at.name {
		return false
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return sameFile(fd, at.dir)
}

// enterWorkingDirectory changes to the working directory of the process.
func (c *call) enterWorkingDirectory() error {
	fd, err := unix.Open(c.proc("cwd"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !c.valid() { // the number may mean another process by now
		return unix.ESRCH
	}
	return unix.Fchdir(fd)
}

// denyDatagrams answers socket(2) of a unix datagram socket: it could send to a socket of the
// host by any of the calls that send, which nobody judges. The error is the one that the manual
// has for a type that may not be used.
func (c *call) denyDatagrams() error {
	c.record(plan.OpConnect, "unix datagram sockets", plan.Decision{Access: policy.Hidden, Rule: judge.RuleSockets, Subject: policy.Datagrams, At: policy.Datagrams,
		Reason: "by one, sockets that the host makes later can be sent to", Origin: builtin("sockets")})
	return unix.EACCES
}

// packetPair answers socketpair(2) of unix datagram sockets by a pair of sequenced packets.
// Those keep the ends of messages, too, and know no address: whatever one end sends goes to the
// other, also where sendto(2) names a socket of the host. Between programs that only talk to
// each other there is no difference but that the end of one is an end of file for the other.
func (c *call) packetPair() error {
	kind, protocol, into := c.args[1], uint32(c.args[2]), c.args[3]
	if protocol != 0 && protocol != unix.AF_UNIX {
		return unix.EPROTONOSUPPORT
	}
	if err := c.write(into, make([]byte, 8)); err != nil { // before there is anything to take back
		return unix.EFAULT
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|int(kind)&unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	numbers := make([]byte, 0, 8)
	for _, fd := range pair {
		number, err := c.put(fd, 0, kind&unix.SOCK_CLOEXEC != 0)
		if err != nil {
			return err
		}
		numbers = binary.NativeEndian.AppendUint32(numbers, uint32(number))
	}
	return c.write(into, numbers)
}

// connect answers connect(2). The kernel runs no connect, whatever its address and its socket
// are: another thread could change both meanwhile (the memory of the address, and with dup2 what
// the descriptor means), and nothing but the broker keeps the command from a socket that the
// host made after the sandbox. So the broker connects the process's own socket, of which it
// takes a descriptor, to an address that it has read once. An address of the network is looked
// up in the namespace of that socket. Peers see the broker's pid, and the same user.
func (c *call) connect(fd int32, address, length uint64) error {
	raw, err := c.address(address, length)
	if err != nil {
		return err
	}
	socket, err := c.descriptor(fd)
	if err != nil {
		return err
	}
	d := &dialing{call: c, socket: socket, address: raw, file: -1, done: make(chan struct{})}
	if name, ok := unixPath(raw); ok {
		err = d.findSocket(name)
	} else if name, ok := abstractName(raw); ok && c.b.inHostNetwork() && !c.mayUseAbstract(name) {
		err = unix.EPERM // as Landlock says
	}
	if err != nil {
		unix.Close(socket)
		return err
	}
	// The thread never waits. Whether a socket does is up to the process, at any moment, so a
	// socket that could has a goroutine.
	kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM && kind != unix.SOCK_SEQPACKET {
		return d.connectDatagrams()
	}
	if c.b.dialing.Add(1) > maxDialing {
		c.b.dialing.Add(-1)
		d.close()
		return unix.EAGAIN
	}
	if c.domain != nil {
		d.rulesets = duplicates(c.domain.rulesets)
	}
	go d.run()
	return errAnswered
}

const (
	// maxDialing bounds the connects that wait, each of which has a thread.
	maxDialing = 256
	// dialPause is how often a connect that waits checks whether it still should.
	dialPause = 50 * time.Millisecond
	// restart is ERESTARTSYS: the kernel runs the handler of a signal and then makes the call
	// again, or lets it fail with EINTR, as the handler was set up.
	restart = unix.Errno(512)
)

// A dialing is a connect of the process's socket.
type dialing struct {
	*call
	socket   int
	address  []byte
	file     int   // the open socket file that the address names, or -1
	rulesets []int // of the domain that the process has entered

	mu   sync.Mutex // held to use the socket elsewhere, and to finish
	done chan struct{}
}

func (d *dialing) close() {
	if d.file >= 0 {
		unix.Close(d.file)
	}
	unix.Close(d.socket)
}

// findSocket opens the socket file that a path means, judges it, and makes it the address.
func (d *dialing) findSocket(name string) error {
	p, err := d.pathname(unix.AT_FDCWD, name)
	if err != nil {
		return err
	}
	file, err := d.openPath(p, unix.O_PATH)
	if err != nil {
		d.recordHiddenSocket(p.full)
		return err
	}
	if err := d.denySocket(file); err != nil {
		unix.Close(file)
		return err
	}
	raw := binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX)
	d.address, d.file = append(append(raw, selfFD(file)...), 0), file
	return nil
}

// denySocket returns why an open file may not be connected to, or nil. The error for what has
// no server inside is the kernel's for a socket without a server: programs know that.
func (c *call) denySocket(fd int) error {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	name, err := realPath(fd)
	if err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		c.recordHiddenSocket(name)
		return unix.ECONNREFUSED
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && c.b.config.Plan.GrantsSocket(strings.TrimSuffix(name, deleted)):
		// The very one that was granted, which may be gone from its path: what the host puts in
		// its place later is no mount.
		return nil
	}
	file, err := c.boundFile(fd)
	if err != nil {
		return err
	}
	if own, err := c.bindsOwn(file); own || err != nil {
		return err
	}
	// A socket whose server is gone is no denial.
	if outside, shown := c.b.config.Plan.HostPath(name); shown && c.b.bindsHost(file) {
		c.recordSocket(name, outside)
	}
	return unix.ECONNREFUSED
}

// recordSocket records that a socket of the host was not connected to.
func (c *call) recordSocket(inside, outside string) {
	c.record(plan.OpConnect, inside, plan.Decision{Access: policy.Hidden, Rule: judge.RuleSockets, Subject: outside, At: outside,
		Reason: "sockets of the host are hidden unless granted", Origin: builtin("sockets")})
}

// recordHiddenSocket records that a path means a socket outside, which is not shown inside.
func (c *call) recordHiddenSocket(full string) {
	if full == "" {
		return
	}
	inside, err := c.b.meaning(full)
	if err != nil {
		return
	}
	outside, hidden := c.b.config.Plan.HiddenAt(inside)
	if info, err := os.Stat(outside); hidden && err == nil && info.Mode()&os.ModeSocket != 0 {
		c.recordSocket(inside, outside)
	}
}

// connectDatagrams connects a socket for which that takes no time.
func (d *dialing) connectDatagrams() error {
	server, inet := inetAddress(d.address)
	stands := inet && d.standInFor(server)
	err := d.as(d.dial)
	d.recordUnreachable(err)
	if stands && err == nil {
		d.noteAsker(d.socket)
	}
	d.close()
	return err
}

// dial is connect(2) with an address as the process wrote it.
func (d *dialing) dial() error {
	var p unsafe.Pointer
	if len(d.address) > 0 {
		p = unsafe.Pointer(&d.address[0])
	}
	for {
		_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(d.socket), uintptr(p), uintptr(len(d.address)))
		runtime.KeepAlive(d.address)
		switch e {
		case 0:
			return nil
		case unix.EINTR: // a signal for this process
			continue
		}
		return e
	}
}

// run connects on a goroutine and answers.
func (d *dialing) run() {
	defer d.b.dialing.Add(-1)
	timer := time.AfterFunc(dialPause, d.watch)
	err := d.dialInDomain()
	d.mu.Lock()
	close(d.done)
	d.mu.Unlock()
	timer.Stop()
	d.b.answerLate(func() { d.recordUnreachable(err) })
	// Before the answer: a process that closes its socket then may use the port again.
	d.close()
	d.b.answerLate(func() { d.answer(err) })
}

// dialInDomain dials in the domain of the process, on a thread of its own: the domain's usual
// one cannot wait.
func (d *dialing) dialInDomain() error {
	if len(d.rulesets) == 0 {
		return d.dial()
	}
	own, err := newDomain(d.rulesets, d.b.privileged())
	if err != nil {
		return err
	}
	defer own.close()
	in := *d.call
	in.domain = own
	return in.as(d.dial)
}

// watch ends the wait when the process is gone or has a signal to handle. As without a broker,
// a connection that is being made goes on after a signal.
func (d *dialing) watch() {
	tick := time.NewTicker(dialPause)
	defer tick.Stop()
	for answered := false; ; {
		waits, open := false, false
		d.b.answerLate(func() { open, waits = true, d.valid() })
		switch {
		case !open || !answered && !waits:
			d.giveUp()
			return
		case !answered && signalled(d.pid):
			answered = true
			d.b.answerLate(func() { d.answer(restart) })
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

// stopping are the signals that stop a process unless it handles them.
const stopping = 1<<(unix.SIGSTOP-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)

// signalled reports whether a thread has a signal to act on which does not end it: the kernel
// keeps it until the call is answered. A signal for the whole process counts only where there is
// no other thread that could take it, for then the kernel would not make the call again but
// return restart.
func signalled(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	set := func(key string) uint64 {
		n, _ := strconv.ParseUint(lastField(b, "\n"+key+":"), 16, 64)
		return n
	}
	pending := set("SigPnd")
	if lastNumber(b, "\nThreads:") == 1 {
		pending |= set("ShdPnd")
	}
	return pending&^set("SigBlk")&(set("SigCgt")|stopping&^set("SigIgn")) != 0
}
