//go:build amd64 || arm64

package notify

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Look answers calls on the thread of the caller, who waits for the command anyway,
// until fd can be read, which it reports. It is for calls that the kernel goes on with
// in any case: short commands make no others, and to wake another thread for them
// costs more than the rest of such a command. With the first call that is more than
// that, and at the end of the time, however much is still asked, the broker's thread
// takes over: the caller has limits to watch.
//
// The caller's thread needs none of what isolateThread prepares: nothing is changed
// or handed over here.
func (b *Broker) Look(fd int, end time.Time) (readable bool) {
	if b.asks != nil { // whose answers only the thread waits for
		b.Attend()
	}
	for left := time.Until(end); b.thread == nil && left > 0; left = time.Until(end) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: b.source(), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			b.Attend()
		case fds[0].Revents != 0:
			return true
		case n > 0:
			b.lookAt(fds[1].Revents)
		}
	}
	b.Attend()
	return false
}

// lookAt handles what the listener has, or leaves it to the thread.
func (b *Broker) lookAt(source int16) {
	if source&unix.POLLIN == 0 {
		b.end() // no process is left
		return
	}
	var n notification
	switch err := b.receive(&n); {
	case err == nil:
		if c := b.callOf(&n); !b.begun || !c.onlyLooksUp() {
			b.left = c
			b.Attend()
		}
	case !errors.Is(err, unix.ENOENT) || b.abandoned():
		b.end()
	}
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

// catchUp handles the call that was left to the thread.
func (b *Broker) catchUp() {
	if b != nil && b.left != nil {
		c := b.left
		b.left = nil
		c.handle()
	}
}
