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
	// launcherGrace is how long the launcher has to end after its sandbox was
	// killed or lost its lifeline.
	launcherGrace = 3 * time.Second
	// treeGrace bounds the wait for a killed sandbox. A process that hangs in
	// the kernel, on a dead network file system for instance, cannot be killed.
	treeGrace = 10 * time.Second
)

// A child is the launched program and the sandbox behind it.
type child struct {
	proc    *os.Process
	waiter  waiter // waits for proc, unless there is a forker
	hasInit bool
	adopts  bool          // the init is no pid 1, and ends its tree itself
	settled chan struct{} // closed when the command runs or never will
	done    chan struct{} // closed when the tree is gone
	readers sync.WaitGroup
	// changes are the signals that the command was stopped by, for job control.
	changes chan syscall.Signal
	// parked is the sandbox that the run shares with others, or nil; tag marks its
	// processes there, or is 0.
	parked   *Parked
	guard    *guard   // nil if the launch has none
	network  *network // nil if the launch has none
	tag      uint64
	forker   *sysprog.Process // knows of another process to be reaped; or nil
	statusFD int              // the init's reports, read when they are needed, or -1
	renew    func()           // sees to what the next command needs; or nil
	mounts   int              // holds the run's mount namespace, or is -1: see holdMounts

	killing  sync.Mutex // held while processes are being searched and killed
	mu       sync.Mutex
	lifeline *os.File // nil if there is none or it is closed
	pid1     int      // the sandbox's pid 1, or 0
	pidfd    int      // of pid1, or -1
	killed   bool
	// noNetwork is why there was no network.
	noNetwork error
	reaped    bool
	report    report
}

// A report is what the init said so far.
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

// signal sends a signal to the command; an init passes it on.
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

// forGroup: the signals that a terminal sends to a whole process group. The
// init has the same rule.
func forGroup(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGSTOP, unix.SIGCONT, unix.SIGWINCH:
		return true
	}
	return false
}

// setPid1 takes note of the sandbox's first process. The pid comes from the
// launcher; that it is a child of the launcher shows that it has not been used
// again for something else. A /proc that hides it cannot show that, and the
// launcher, which ends as soon as it has reaped its child, has to be believed.
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

// endSignal is what the init gets when the run is to end. One that adopts
// orphans may have been stopped, and would not see its lifeline go.
func (c *child) endSignal() syscall.Signal {
	if c.adopts {
		return unix.SIGCONT
	}
	return unix.SIGKILL
}

// kill ends the tree. It returns when the launcher is gone.
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

// killInit kills pid 1, now or as soon as it is known, and lets the lifeline
// go. The launcher is not touched: see the package comment. An init that adopts
// orphans would let them go if it were killed; the loss of the lifeline makes it
// end them and itself.
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

// reap waits for the end of the tree, when the launcher has ended.
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
	case direct: // the init was the last of its namespace
	case c.hasInit:
		c.killInit()
		c.awaitInit()
		if c.adopts && !exited(state) {
			c.killOrphans()
		}
	default:
		c.killing.Lock() // a search that is under way
		defer c.killing.Unlock()
	}
	if c.forker != nil {
		c.forker.ReapForker()
	}
	close(c.done)
}

// letProcessGo reaps a process that has ended, unless that was done, and closes its
// descriptor.
func (c *child) letProcessGo() {
	_, _ = c.proc.Wait()
	if c.forker != nil {
		c.forker.Release()
	}
}

// holdMounts opens the mount namespace of the run, for cleanUp to close. The kernel
// takes the mounts apart when nobody has their namespace open, and the last process
// of the run would have to wait for that.
func (c *child) holdMounts() {
	if fd := c.forker.PidFD(); fd >= 0 { // Linux 6.11; the way through /proc takes ten times as long
		if ns, err := unix.IoctlRetInt(fd, unix.PIDFD_GET_MNT_NAMESPACE); err == nil {
			c.mounts = ns
			return
		}
	}
	c.mounts, _ = unix.Open("/proc/"+strconv.Itoa(c.proc.Pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// cleanUp releases what is left when the caller has the outcome, and prepares the
// sandbox for the next command.
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

// exited reports whether a process ended of its own accord.
func exited(state endState) bool { return state != nil && state.Exited() }

// awaitInit waits until pid 1 is gone, which the kernel makes the last of its
// namespace, and until everything it reported was read.
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

// startError says why the command never ran, by what was reported; state is how
// the launcher ended.
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
		// It was killed when the order was on its way: a command of a fast session
		// can do that to all others. The command is started in a new sandbox.
		return &ChangedError{Path: "the parked sandbox", Err: errors.New("the process that waited for the command has ended")}
	case r.garbled != nil:
		e.Err = r.garbled
	default:
		if err := mustExist(spec.Launch); err != nil {
			return err // it went away before bubblewrap could cover it: a new plan does without
		}
		e.Detail = fmt.Sprintf("the launcher ended (%v) before the command started; what it had to say is on standard error", state)
	}
	return e
}

// programError is why a program failed in the command's process.
func programError(r initprog.Record) error {
	if r.Errno() == 0 {
		return errors.New("it returned something else than expected")
	}
	return r.Errno()
}

// status is the command's exit code and signal. A tree that was killed reported
// none, and the launcher's own status stands in for it.
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

// stops tells when the command stopped (true) and went on (false).
func (c *child) stops() <-chan syscall.Signal { return c.changes }

// reportsStops: without an init nobody tells.
func (c *child) reportsStops() bool { return c.hasInit }

// An endState is how a process ended: an *os.ProcessState, or what was seen of one
// that is still to be reaped.
type endState interface {
	fmt.Stringer
	Exited() bool
	UserTime() time.Duration
	SystemTime() time.Duration
	Sys() any
	SysUsage() any
}

// await waits for the end of the process until a time; zero is for ever. One in a
// parked sandbox is reaped when the caller has its result (letProcessGo): the kernel
// takes as long for that as for all else that is left to do.
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

// An unreaped process has ended and keeps its number.
type unreaped struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
}

// seeEnd waits for the end of a process by its descriptor without reaping it. It
// returns nil where that cannot be done.
func seeEnd(pidfd int) *unreaped {
	var info struct { // siginfo_t, as it is for SIGCHLD
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

// readBwrap reads bwrap's own reports: JSON objects, the first of which has the
// pid of the sandbox's first process. It closes known after the first one.
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

// readInit reads the init's reports. The pid of pid 1 has been reported by the
// time that it runs, so a command that is known to run can be signaled; known
// is closed once that report was read.
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

// settleAtEnd leaves it to endDirect to find out whether the command ran, if that
// is who reads the reports.
func (c *child) settleAtEnd() {
	if c.statusFD >= 0 {
		close(c.settled)
	}
}

// settle returns when the command runs or never will.
func (c *child) settle() {
	if c.statusFD >= 0 {
		c.readDirect()
		close(c.settled)
	}
	<-c.settled
}

// readDirect reads reports up to the one that settles the start, without the
// poller and a goroutine in between: that is the better part of what a warm
// start costs here. The end of the init ends it too.
func (c *child) readDirect() {
	for {
		rec, err := initprog.ReadRecord(statusReader(c.statusFD))
		if err == io.EOF && !c.hasInit {
			c.note(initprog.Record{Type: initprog.Started}) // the socket was closed by execve
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

// endDirect reads what is left of the reports when the init is gone: somebody
// else may still hold the pipe, a child that is just being made for instance, so
// its end of file is not waited for.
func (c *child) endDirect() {
	<-c.settled // or two would read
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
		c.report.started = true // the socket was closed by execve, and nobody told of an error
	}
	c.pidfd = -1 // it is the forker's, which is released after this
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
