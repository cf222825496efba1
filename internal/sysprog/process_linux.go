//go:build amd64 || arm64

package sysprog

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Process is a process that a program has made. The caller has to wait for it.
type Process struct {
	// Pid is its pid, as the caller of Run sees it.
	Pid int

	output []byte // what the program returned
	// forker is the process that forked this one. It has ended, and is reaped together with
	// this one, because waiting for it earlier would delay the start.
	forker *Process

	mu    sync.RWMutex // held while pidFD is used or closed
	pidFD int          // -1 once it is closed
}

// PidFD returns the pidfd of the process, for poll and the like. It is readable when the
// process has ended, and is closed by [Process.Wait].
func (p *Process) PidFD() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.pidFD
}

// Inode returns the inode of [Block.ReportInode], or 0.
func (p *Process) Inode() uint64 {
	if len(p.output) < offsetStatxIno+wordSize {
		return 0
	}
	return binary.LittleEndian.Uint64(p.output[offsetStatxIno:])
}

// Signal sends a signal. After the process has been waited for it returns
// [os.ErrProcessDone].
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.pidFD < 0 {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(p.pidFD, s, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}

// Wait waits for the end of the process, reaps it, and closes its descriptor. It can be called
// once.
func (p *Process) Wait() (syscall.WaitStatus, error) {
	fd := p.PidFD()
	if fd < 0 {
		return 0, os.ErrProcessDone
	}
	defer p.ReapForker()
	// First wait without reaping, so that Signal can be called meanwhile. The lock is only
	// held for closing.
	if _, err := waitid(unix.P_PIDFD, fd, unix.WEXITED|unix.WNOWAIT); err != nil && !errors.Is(err, unix.ECHILD) {
		return 0, os.NewSyscallError("waitid", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidFD < 0 {
		return 0, os.ErrProcessDone
	}
	status, err := waitid(unix.P_PIDFD, p.pidFD, unix.WEXITED)
	unix.Close(p.pidFD)
	p.pidFD = -1
	if errors.Is(err, unix.ECHILD) {
		return 0, ErrNoStatus
	}
	return status, os.NewSyscallError("waitid", err)
}

// ReapForker reaps the process that forked this one, in a program that forks; it has ended.
// [Process.Wait] does that too.
func (p *Process) ReapForker() { _, _ = p.reapForker() }

func (p *Process) reapForker() (syscall.WaitStatus, error) {
	p.mu.Lock()
	forker := p.forker
	p.forker = nil
	p.mu.Unlock()
	if forker == nil {
		return 0, nil
	}
	return forker.Wait()
}

// Release releases the process without waiting for it: the caller reaps it by its pid, and
// calls ReapForker.
func (p *Process) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidFD >= 0 {
		unix.Close(p.pidFD)
		p.pidFD = -1
	}
}

// endedBy returns the signal that ended a process, or 0, without reaping it. The process must
// have ended.
func (p *Process) endedBy() syscall.Signal {
	status, err := waitid(unix.P_PIDFD, p.pidFD, unix.WEXITED|unix.WNOWAIT)
	if err != nil || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// destroy kills and reaps the process. A process without a descriptor was forked by a program
// and has not been reaped, so its pid has not been reused. Errors only mean that it has ended
// already.
func (p *Process) destroy() {
	defer p.ReapForker()
	if p.pidFD < 0 {
		_ = unix.Kill(p.Pid, unix.SIGKILL)
		_, _ = waitid(unix.P_PID, p.Pid, unix.WEXITED)
		return
	}
	_ = p.Signal(unix.SIGKILL)
	_, _ = p.Wait()
}

// siginfo is siginfo_t with its union in the layout for SIGCHLD.
type siginfo struct {
	signal, errno, code, _ int32
	pid                    int32
	uid                    uint32
	status                 int32
	_                      [100]byte
}

// The values of siginfo.code for the end of a process.
const (
	codeExited = 1
	codeDumped = 3
)

// waitid returns the status in the form of wait4.
func waitid(idType, id, options int) (syscall.WaitStatus, error) {
	info, err := waitInfo(idType, id, options)
	if err != nil {
		return 0, err
	}
	switch info.code {
	case codeExited:
		return syscall.WaitStatus(info.status & 0xff << 8), nil
	case codeDumped:
		return syscall.WaitStatus(info.status | 0x80), nil
	}
	return syscall.WaitStatus(info.status), nil
}

// waitInfo is waitid, repeated while signals interrupt it.
func waitInfo(idType, id, options int) (info siginfo, err error) {
	for {
		err = unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(&info)), options, nil)
		if !errors.Is(err, unix.EINTR) {
			return info, err
		}
	}
}
