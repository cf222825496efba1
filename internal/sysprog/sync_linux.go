//go:build amd64 || arm64

package sysprog

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Child is a process that waits for its parent in a [Block.SyncParent].
type Child struct {
	// Pid is its number.
	Pid int
	// Round counts how often the program has waited, from 0.
	Round int

	run *run
}

// PidFD returns a pidfd of the process, which is valid until SyncParent returns.
func (c *Child) PidFD() int { return int(atomic.LoadInt32(&c.run.control.pidFD)) }

// Result returns the result of an earlier step. A descriptor is the child's. For an argument
// that is not the result of a step it returns -1.
func (c *Child) Result(a Arg) int64 {
	if a.Kind != KindResult {
		return -1
	}
	for n, step := range c.run.image.steps {
		if uint64(step) == a.Value {
			return int64(atomic.LoadUint64(c.run.word(offsetOf(n) + offsetResult)))
		}
	}
	return -1
}

// A rendezvous is a pair of connected sockets. The child asks over one end and waits for the
// answer. A goroutine answers over the other end, because the thread that forked sleeps in
// clone.
type rendezvous struct {
	childEnd, parentEnd int
	done                chan error
}

// leastSync is the lowest number for the ends of a rendezvous. A program puts descriptors at
// small numbers, and may wait for its parent after that.
const leastSync = 64

func newRendezvous() (*rendezvous, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make the rendezvous with the child: socketpair: %w", err)
	}
	for i, fd := range ends {
		if fd >= leastSync {
			continue
		}
		if ends[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, leastSync); err != nil {
			unix.Close(ends[0]) // the one that failed is -1
			unix.Close(ends[1])
		}
		unix.Close(fd)
		if err != nil {
			return nil, fmt.Errorf("cannot make the rendezvous with the child: fcntl: %w", err)
		}
	}
	return &rendezvous{childEnd: ends[0], parentEnd: ends[1], done: make(chan error, 1)}, nil
}

func (s *rendezvous) close() {
	unix.Close(s.childEnd)
	unix.Close(s.parentEnd)
}

// serve answers the child in another goroutine.
func (r *run) serve() {
	if r.sync == nil {
		return
	}
	go func() {
		err := r.answer()
		if err != nil {
			r.kill()
		}
		r.sync.done <- err
	}()
}

// finishSync ends serve, after the child has ended or executed a program. The shutdown also
// reaches the reader if another child, forked meanwhile, has a copy of the socket.
func (r *run) finishSync() error {
	if r.sync == nil {
		return nil
	}
	_ = unix.Shutdown(r.sync.childEnd, unix.SHUT_RDWR) // both ends are still open
	return <-r.sync.done
}

// answer calls SyncParent each time the child asks, until the child has ended. The run finds
// out why it ended.
func (r *run) answer() error {
	for round := 0; oneByte(unix.Read, r.sync.parentEnd); round++ {
		pid, err := pidOf(int(atomic.LoadInt32(&r.control.pidFD)))
		if err != nil {
			return err
		}
		if err := r.options.SyncParent(&Child{Pid: pid, Round: round, run: r}); err != nil {
			return fmt.Errorf("the parent's part of the set-up: %w", err)
		}
		if !oneByte(sendNoSignal, r.sync.parentEnd) {
			return nil
		}
	}
	return nil
}

// oneByte transfers a byte, retrying after EINTR, and reports whether it succeeded.
func oneByte(transfer func(int, []byte) (int, error), fd int) bool {
	for {
		n, err := transfer(fd, []byte{'!'})
		if !errors.Is(err, unix.EINTR) {
			return n == 1 && err == nil
		}
	}
}

// sendNoSignal writes to a socket without raising SIGPIPE, which the caller may use for its
// own purposes.
func sendNoSignal(fd int, b []byte) (int, error) {
	return unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL)
}

// pidOf asks the kernel for the pid behind a pidfd. clone returns the pid only when the
// program has ended, and cannot store both.
func pidOf(fd int) (int, error) {
	path := "/proc/self/fdinfo/" + strconv.Itoa(fd)
	info, err := readShort(path)
	if err != nil {
		return 0, fmt.Errorf("cannot learn the pid of the child: %w", err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("cannot learn the pid of the child: %s has no line with it", path)
}

// readShort reads a file of a few lines with as few calls as possible, because the child
// waits.
func readShort(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var text [1024]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(text[:n]), nil
}

// killUntil kills the child, which may not exist yet, or gives up when the run is over.
func (r *run) killUntil(over <-chan struct{}) {
	for !r.kill() {
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
