//go:build amd64 || arm64

package notify

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxWaiting bounds the opens of FIFOs that wait, each of which has a thread. A
	// program of Go ends where it has ten thousand of those.
	maxWaiting = 256
	// releaseTries is how often the end of a broker tries to end the waiting.
	releaseTries = 40
)

func selfFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openFIFO opens a FIFO for writing.
func (o *openCall) openFIFO(at *place) {
	fd, err := unix.Openat(at.dir, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		o.failWith(err)
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		o.fail(unix.EACCES) // replaced since it was judged
		return
	}
	o.waitForFIFO(fd)
}

// waitForFIFO opens the FIFO that fd names. That waits for the other end, which
// another process may be about to open through this very broker: the waiting is
// done elsewhere.
func (o *openCall) waitForFIFO(fd int) {
	if o.domain != nil {
		o.fail(unix.EACCES) // the one thread of that domain cannot wait
		return
	}
	if o.b.opening.Add(1) > maxWaiting {
		o.b.opening.Add(-1)
		o.fail(unix.EMFILE)
		return
	}
	held, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		o.b.opening.Add(-1)
		o.failWith(err)
		return
	}
	flags := o.kernelFlags() &^ (unix.O_NOFOLLOW | unix.O_CREAT | unix.O_EXCL)
	gone := make(chan struct{})
	go func() {
		defer o.b.opening.Add(-1)
		defer close(gone)
		opened, err := unix.Open(selfFD(held), flags, 0)
		o.giveLate(opened, err)
	}()
	o.b.waiting.Go(func() {
		if o.releaseFIFO(held, gone) {
			unix.Close(held)
		}
	})
}

// giveLate answers an open that may have outlasted the broker.
func (o *openCall) giveLate(fd int, err error) {
	o.b.open.RLock()
	defer o.b.open.RUnlock()
	switch {
	case !o.b.closed:
		o.givePipe(fd, err)
	case err == nil:
		unix.Close(fd)
	}
}

// givePipe is giveOpened for one end of a pipe.
func (o *openCall) givePipe(fd int, err error) {
	if err != nil {
		o.failWith(err)
		return
	}
	o.give(fd, o.flags&unix.O_CLOEXEC != 0)
}

// releaseFIFO ends the waiting of a process that is gone, by opening both ends. It
// returns false where that cannot be done: then a thread waits on, and not the
// broker for it.
func (o *openCall) releaseFIFO(held int, gone <-chan struct{}) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	ended := o.b.done
	for tries := 0; tries < releaseTries; {
		select {
		case <-gone:
			return true
		case <-ended:
			ended = nil // from now on at each tick
		case <-tick.C:
			if ended != nil && o.valid() {
				continue
			}
		}
		if fd, err := openBothEnds(held); err == nil {
			<-gone
			unix.Close(fd)
			return true
		}
		if ended == nil {
			tries++
		}
	}
	return false
}

// openBothEnds opens a FIFO for reading and writing. A command that takes its mode
// away meanwhile would have us wait for ever: its owner may give it back.
func openBothEnds(held int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(selfFD(held), flags, 0)
	if err != unix.EACCES {
		return fd, err
	}
	var info unix.Stat_t
	if err := unix.Fstat(held, &info); err != nil {
		return -1, err
	}
	if err := unix.Chmod(selfFD(held), info.Mode&0o7777|0o600); err != nil {
		return -1, err
	}
	fd, err = unix.Open(selfFD(held), flags, 0)
	_ = unix.Chmod(selfFD(held), info.Mode&0o7777)
	return fd, err
}
