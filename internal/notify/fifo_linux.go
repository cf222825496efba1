//go:build amd64 || arm64

package notify

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func selfFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openFIFO opens a FIFO for writing.
func (o *openCall) openFIFO(at *place) {
	fd, err := unix.Openat(at.dir, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		o.failWith(err)
		return
	}
	o.waitForFIFO(fd)
	unix.Close(fd)
}

// waitForFIFO opens the FIFO that fd names. That waits for the other end, which
// another process may be about to open through this very broker: the waiting is
// done elsewhere.
func (o *openCall) waitForFIFO(fd int) {
	if o.domain != nil {
		o.fail(unix.EACCES) // the one thread of that domain cannot wait
		return
	}
	held, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		o.failWith(err)
		return
	}
	flags := o.kernelFlags() &^ (unix.O_NOFOLLOW | unix.O_CREAT | unix.O_EXCL)
	gone := make(chan struct{})
	o.b.waiting.Go(func() {
		defer close(gone)
		opened, err := unix.Open(selfFD(held), flags, 0)
		o.giveOpened(opened, err)
	})
	o.b.waiting.Go(func() {
		defer unix.Close(held)
		o.releaseFIFO(held, gone)
	})
}

// releaseFIFO ends the waiting of a process that is gone, by opening both ends.
func (o *openCall) releaseFIFO(held int, gone <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-o.b.done:
		case <-tick.C:
			if o.valid() {
				continue
			}
		}
		if fd, err := unix.Open(selfFD(held), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			<-gone
			unix.Close(fd)
			return
		}
	}
}
