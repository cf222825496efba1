package supervise

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// await waits for the end of the process. One in a parked sandbox is reaped when the
// caller has its result (letProcessGo): the kernel takes as long for that as for all
// else that is left to do.
func (c *child) await() endState {
	if c.parked != nil && c.forker != nil {
		if u := seeEnd(c.forker.PidFD()); u != nil {
			return u
		}
	}
	state, err := c.proc.Wait()
	if err != nil {
		return nil
	}
	return state
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
