package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

const (
	sigCont = unix.SIGCONT
	// launcherGrace is how long the launcher may take to end after its sandbox was killed or
	// its lifeline was closed.
	launcherGrace = 3 * time.Second
	// treeGrace limits the wait for a killed sandbox. A process that hangs in the kernel, for
	// example on a dead network file system, cannot be killed.
	treeGrace = 10 * time.Second
)

// A child is the launched program and the sandbox behind it.
type child struct {
	proc    *os.Process
	waiter  waiter // waits for proc, unless there is a forker
	hasInit bool
	adopts  bool          // the init is not pid 1, and kills its tree itself
	settled chan struct{} // closed when the command runs or never will
	done    chan struct{} // closed when the tree is gone
	readers sync.WaitGroup
	// changes receives the signal each time the command is stopped, for job control.
	changes chan syscall.Signal
	// parked is the sandbox that the run shares with others, or nil. tag identifies the run's
	// processes in it, or is 0.
	parked   *Parked
	guard    *guard   // nil if the launch has none
	network  *network // nil if the launch has none
	tag      uint64
	forker   *sysprog.Process // proc as package sysprog has it, with its pidfd, if a program made it; or nil
	statusFD int              // for the init's reports, if they are read on demand; else -1
	renew    func()           // prepares what the next command needs; or nil
	mounts   int              // keeps the run's mount namespace open, or is -1: see holdMounts

	killing  sync.Mutex // held while processes are searched and killed
	mu       sync.Mutex
	lifeline *os.File // nil if there is none or it is closed
	pid1     int      // the sandbox's pid 1, or 0
	pidfd    int      // of pid1, or -1
	killed   bool
	// noNetwork is why the network could not be made.
	noNetwork error
	reaped    bool
	report    report
}

// A report is what the init has reported so far.
type report struct {
	started bool
	ended   bool
	status  unix.WaitStatus
	failed  initprog.Record // ExecFailed, SetupFailed or ProgramFailed, or zero
	garbled error
}

func (c *child) started() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report.started
}

// running reports whether the command can be sent a signal.
func (c *child) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report.started && !c.report.ended && !c.reaped
}

// signal sends a signal to the command. If there is an init, the init passes it on.
func (c *child) signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return os.ErrProcessDone
	}
	if c.hasInit {
		if c.pidfd < 0 {
			return fmt.Errorf("signal %v: the sandbox's first process is not known", sig)
		}
		return unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
	}
	if forGroup(sig) {
		return unix.Kill(-c.proc.Pid, sig)
	}
	return c.proc.Signal(sig)
}

// forGroup reports whether a terminal sends this signal to a whole process group. The init has
// the same list.
func forGroup(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGSTOP, unix.SIGCONT, unix.SIGWINCH:
		return true
	}
	return false
}

// setPid1 sets the sandbox's first process. The pid comes from the launcher. If its parent is
// the launcher, the number has not been reused for another process. If /proc hides the parent,
// that cannot be checked and the launcher is trusted, because it ends as soon as it has reaped
// its child.
func (c *child) setPid1(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	if pid != c.proc.Pid {
		if parent := parentOf(pid); parent != 0 && parent != c.proc.Pid {
			unix.Close(fd)
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid1, c.pidfd = pid, fd
	if c.killed {
		_ = unix.PidfdSendSignal(fd, c.endSignal(), nil, 0)
	}
}

// endSignal returns the signal that ends the init. An init that adopts orphans gets SIGCONT,
// because it ends when its lifeline closes, and would not notice that while it is stopped.
func (c *child) endSignal() syscall.Signal {
	if c.adopts {
		return unix.SIGCONT
	}
	return unix.SIGKILL
}

// kill ends the tree. It returns when the launcher has ended.
func (c *child) kill() {
	if c.tag != 0 {
		c.killTagged()
		return
	}
	if !c.hasInit {
		c.killSession()
		return
	}
	c.killInit()
	select {
	case <-c.done:
	case <-time.After(launcherGrace):
		if c.adopts {
			c.killAdopted()
		}
		_ = c.proc.Kill()
	}
}

// killInit kills pid 1, now or as soon as its pid is known, and closes the lifeline. It does
// not kill the launcher: see the package comment. An init that adopts orphans is not killed,
// because its orphans would live on; the closed lifeline makes it kill them and then end.
func (c *child) killInit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.pidfd >= 0 {
		_ = unix.PidfdSendSignal(c.pidfd, c.endSignal(), nil, 0)
	}
	if c.lifeline != nil {
		c.lifeline.Close()
		c.lifeline = nil
	}
}

// reap waits for the end of the tree after the launcher has ended.
func (c *child) reap(state endState) {
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	direct := c.statusFD >= 0
	if direct {
		c.endDirect()
	}
	switch {
	case c.tag != 0:
		c.endTagged()
	case direct: // the init ended last in its namespace
	case c.hasInit:
		c.killInit()
		c.awaitInit()
		if c.adopts && !exited(state) {
			c.killOrphans()
		}
	default:
		c.killing.Lock() // wait for a search that still runs
		defer c.killing.Unlock()
	}
	if c.forker != nil {
		c.forker.ReapForker()
	}
	close(c.done)
}

// letProcessGo reaps a process that has ended, unless that was done already, and closes its
// descriptor.
func (c *child) letProcessGo() {
	_, _ = c.proc.Wait()
	if c.forker != nil {
		c.forker.Release()
	}
}

// holdMounts opens the mount namespace of the run; cleanUp closes it. The kernel unmounts
// everything when the last reference to the namespace is closed. Without this reference, the
// run's last process would have to wait for that before it ends.
func (c *child) holdMounts() {
	if fd := c.forker.PidFD(); fd >= 0 { // Linux 6.11; going through /proc takes ten times as long
		if ns, err := unix.IoctlRetInt(fd, unix.PIDFD_GET_MNT_NAMESPACE); err == nil {
			c.mounts = ns
			return
		}
	}
	c.mounts, _ = unix.Open("/proc/"+strconv.Itoa(c.proc.Pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// cleanUp releases the rest after the caller has the outcome, and prepares the sandbox for the
// next command.
func (c *child) cleanUp() {
	if c.statusFD >= 0 {
		unix.Close(c.statusFD)
	}
	c.letProcessGo()
	c.guard.free()
	if c.mounts >= 0 {
		unix.Close(c.mounts)
	}
	if c.renew != nil {
		c.renew()
	}
}

// exited reports whether a process exited, rather than being killed by a signal.
func exited(state endState) bool { return state != nil && state.Exited() }

// awaitInit waits until pid 1 has ended, which is always the last process of its namespace,
// and until all its reports were read.
func (c *child) awaitInit() {
	c.mu.Lock()
	poll := []unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}
	c.mu.Unlock()
	if poll[0].Fd >= 0 {
		_, _ = pollUntil(poll, time.Now().Add(treeGrace))
	}
	read := make(chan struct{})
	go func() { c.readers.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(treeGrace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
}

func pollUntil(fds []unix.PollFd, end time.Time) (n int, err error) {
	for {
		left := time.Until(end)
		if left <= 0 {
			return 0, nil
		}
		n, err = unix.Poll(fds, int(left.Milliseconds())+1)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// startError returns why the command never ran, from the reports. state is how the launcher
// ended.
func (c *child) startError(spec *Spec, state endState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &SetupError{Backend: spec.Launch.Backend, Step: "start the sandbox"}
	switch r := c.report; {
	case r.started:
		return nil
	case c.noNetwork != nil:
		return networkError(spec, c.noNetwork)
	case r.failed.Type == initprog.ExecFailed:
		return &ExecError{Path: spec.Command, Errno: r.failed.Errno()}
	case r.failed.Type == initprog.SetupFailed && r.failed.Step() == initprog.StepFolder && isGone(r.failed.Errno()):
		return &ChangedError{Path: spec.Launch.Dir, Err: r.failed.Errno()}
	case r.failed.Type == initprog.SetupFailed:
		e.Step, e.Err = r.failed.Step().String(), r.failed.Errno()
	case r.failed.Type == initprog.ProgramFailed:
		e.Step, e.Err = fmt.Sprintf("call %d of the command's program of system calls", r.failed.ProgramRecord()), programError(r.failed)
	case spec.Launch.Awaits && errors.Is(r.garbled, unix.ECONNRESET):
		// The init was killed while it received the order. In a session of WithWarmFast, each
		// command can do that to the others. The command is started again in a new sandbox.
		return &ChangedError{Path: "the parked sandbox", Err: errors.New("the process that waited for the command has ended")}
	case r.garbled != nil:
		e.Err = r.garbled
	default:
		if err := mustExist(spec.Launch); err != nil {
			return err // a path was gone before bubblewrap could mount something on it; a new plan leaves it out
		}
		e.Detail = fmt.Sprintf("the launcher ended (%v) before the command started; its error is on standard error", state)
	}
	return e
}

// programError returns why a program of system calls failed in the command's process.
func programError(r initprog.Record) error {
	if r.Errno() == 0 {
		return errors.New("it returned something else than expected")
	}
	return r.Errno()
}

// status returns the command's exit code and signal. A tree that was killed has reported none:
// without an init the launcher's status counts, with one it is SIGKILL.
func (c *child) status(state endState) (code int, sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ws := c.report.status
	if !c.hasInit && state != nil {
		ws = unix.WaitStatus(state.Sys().(syscall.WaitStatus))
	} else if !c.report.ended {
		ws = unix.WaitStatus(unix.SIGKILL)
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return ws.ExitStatus(), 0
}

func maxRSS(state endState) int64 {
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}

// stops receives the signal each time the command is stopped.
func (c *child) stops() <-chan syscall.Signal { return c.changes }

// reportsStops reports whether stops receives anything: only an init reports stops.
func (c *child) reportsStops() bool { return c.hasInit }

// An endState is how a process ended: an *os.ProcessState, or the state of a process that has
// not been reaped yet.
type endState interface {
	fmt.Stringer
	Exited() bool
	UserTime() time.Duration
	SystemTime() time.Duration
	Sys() any
	SysUsage() any
}

// await waits until the process ends or a time is reached; the zero time means no limit. A
// process in a parked sandbox is reaped only after the caller has its result (letProcessGo),
// because the kernel takes as long for that as for everything else that remains.
func (c *child) await(until time.Time) (state endState, ended bool) {
	if c.forker == nil {
		return c.waiter.await(c.proc, until)
	}
	fd := c.forker.PidFD()
	if !until.IsZero() && !c.guard.answerUntil(fd, until) {
		if n, err := pollUntil([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, until); n == 0 && err == nil {
			return nil, false
		}
	}
	if c.parked != nil {
		if u := seeEnd(fd); u != nil {
			return u, true
		}
	}
	if state, err := c.proc.Wait(); err == nil {
		return state, true
	}
	return nil, true
}

// An unreaped process has ended and still has its pid.
type unreaped struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// seeEnd waits for the end of a process by its pidfd without reaping it. It returns nil if
// that is not possible.
func seeEnd(pidfd int) *unreaped {
	var info struct { // siginfo_t in its layout for SIGCHLD
		signal, errno, code, _ int32
		pid                    int32
		uid                    uint32
		status                 int32
		_                      [100]byte
	}
	u, err := &unreaped{}, error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, (*unix.Rusage)(unsafe.Pointer(&u.usage)))
	}
	if err != nil {
		return nil
	}
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	switch info.code {
	case exited:
		u.status = syscall.WaitStatus(info.status & 0xff << 8)
	case dumped:
		u.status = syscall.WaitStatus(info.status | 0x80)
	default:
		u.status = syscall.WaitStatus(info.status)
	}
	return u
}

func (u *unreaped) Exited() bool              { return u.status.Exited() }
func (u *unreaped) UserTime() time.Duration   { return time.Duration(u.usage.Utime.Nano()) }
func (u *unreaped) SystemTime() time.Duration { return time.Duration(u.usage.Stime.Nano()) }
func (u *unreaped) Sys() any                  { return u.status }
func (u *unreaped) SysUsage() any             { return &u.usage }

func (u *unreaped) String() string {
	if u.status.Signaled() {
		return "signal: " + u.status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", u.status.ExitStatus())
}

// A bwrapReport is one of the objects that bwrap writes about itself.
type bwrapReport struct {
	ChildPID int `json:"child-pid"`
}

// readBwrap reads bwrap's own reports: JSON objects, of which the first contains the pid of
// the sandbox's first process. It closes known after the first one.
func (c *child) readBwrap(f *os.File, known chan<- struct{}) {
	defer c.readers.Done()
	defer f.Close()
	first := sync.OnceFunc(func() { close(known) })
	defer first()
	dec := json.NewDecoder(f)
	for {
		var doc bwrapReport
		if dec.Decode(&doc) != nil {
			return
		}
		if doc.ChildPID > 0 {
			c.setPid1(doc.ChildPID)
		}
		first()
	}
}

// readInit reads the init's reports. It waits for known, which is closed when bwrap's report
// with the pid was read, before it declares the command as running: so a running command can
// always be signaled.
func (c *child) readInit(f *os.File, known <-chan struct{}) {
	defer c.readers.Done()
	defer f.Close()
	settle := sync.OnceFunc(func() { <-known; close(c.settled) })
	defer settle()
	for {
		rec, err := initprog.ReadRecord(f)
		if err != nil {
			c.garbled(err)
			return
		}
		c.note(rec)
		if rec.Type == initprog.Started {
			settle()
		}
	}
}

func (c *child) garbled(err error) {
	if err == io.EOF {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.garbled = err
}

func (c *child) note(rec initprog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch rec.Type {
	case initprog.Started:
		c.report.started = true
	case initprog.ExecFailed, initprog.SetupFailed, initprog.ProgramFailed:
		c.report.failed = rec
	case initprog.Exited:
		c.report.ended, c.report.status = true, unix.WaitStatus(rec.Value)
	case initprog.Stopped:
		select {
		case c.changes <- syscall.Signal(rec.Value):
		default: // nobody does job control
		}
	case initprog.Continued:
	}
}

// settleAtEnd is for a child whose reports are read on demand: it leaves it to endDirect to
// find out whether the command ran.
func (c *child) settleAtEnd() {
	if c.statusFD >= 0 {
		close(c.settled)
	}
}

// settle returns when it is known whether the command runs.
func (c *child) settle() {
	if c.statusFD >= 0 {
		c.readDirect()
		close(c.settled)
	}
	<-c.settled
}

// readDirect reads reports up to the one that says whether the command started. It uses
// neither the poller nor a goroutine, which would be the largest part of the cost of a warm
// start here. It also returns when the init ends.
func (c *child) readDirect() {
	for {
		rec, err := initprog.ReadRecord(statusReader(c.statusFD))
		if err == io.EOF && !c.hasInit {
			c.note(initprog.Record{Type: initprog.Started}) // execve closed the socket
			return
		}
		if err != nil {
			c.garbled(err)
			return
		}
		c.note(rec)
		if rec.Type != initprog.Stopped && rec.Type != initprog.Continued {
			return
		}
	}
}

// endDirect reads the remaining reports after the init has ended. It does not wait for end of
// file, because another process may still have the pipe open, for example a child that was
// just forked.
func (c *child) endDirect() {
	<-c.settled // otherwise two goroutines would read
	poll := []unix.PollFd{{Fd: int32(c.statusFD), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(poll, 0); err == unix.EINTR {
			continue
		} else if n != 1 || poll[0].Revents&unix.POLLIN == 0 {
			break
		}
		rec, err := initprog.ReadRecord(statusReader(c.statusFD))
		if err != nil {
			c.garbled(err)
			break
		}
		c.note(rec)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasInit && c.report.failed.Type == 0 && c.report.garbled == nil {
		c.report.started = true // execve closed the socket, and no error was reported
	}
	c.pidfd = -1 // it belongs to c.forker, which is released after this
	if c.lifeline != nil {
		c.lifeline.Close()
		c.lifeline = nil
	}
}

// A statusReader reads from a descriptor.
type statusReader int

// Read implements io.Reader.
func (r statusReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
