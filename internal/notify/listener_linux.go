//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
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

	// The process and the broker take turns on one processor, which makes a
	// call four times cheaper. Linux 6.6; the kernel says EINVAL before.
	syncWakeUp = 1
	// Let the kernel go on with the call.
	goOn = 1
	// Answer the call with the number of the new descriptor. Linux 5.14.
	sendToo = 2
)

func ioctl(fd int, request uintptr, p unsafe.Pointer) (int, error) {
	for {
		// To hand a descriptor over waits for the process: the scheduler has to know.
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

// setSync asks for the quick way of waking, where the kernel has it.
func setSync(fd int) {
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlSetFlags, syncWakeUp)
}

// receive takes the call that there is. It is ENOENT if its process was killed
// meanwhile, or if none is left.
func (b *Broker) receive(n *notification) error {
	*n = notification{}
	_, err := ioctl(b.fd, ioctlReceive, unsafe.Pointer(n))
	return err
}

// abandoned reports whether no process is left under the filter (Linux 5.9).
func (b *Broker) abandoned() bool {
	p := []unix.PollFd{{Fd: int32(b.fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// A call is one system call that waits for its answer.
type call struct {
	b  *Broker
	id uint64
	// pid is the thread that waits.
	pid  int
	nr   int
	args [6]uint64
	// domain is the one that the process has entered, or nil.
	domain *domain
	// node: the call makes a file that it does not open, by mknod or bind.
	node bool
	// alone: the call is handled while no other broker makes a change; again: it has to be.
	alone, again bool
	// kept is what was read from the process, and what was asked about: see ask.
	kept kept
}

// valid reports whether the process still waits: only then does its number mean it.
func (c *call) valid() bool {
	id := c.id
	_, err := ioctl(c.b.fd, ioctlIDValid, unsafe.Pointer(&id))
	return err == nil
}

// resume lets the kernel run the call.
func (c *call) resume() { c.send(response{id: c.id, flags: goOn}) }

// fail answers with an error.
func (c *call) fail(e unix.Errno) { c.send(response{id: c.id, errno: -int32(e)}) }

// succeed answers with a result.
func (c *call) succeed(value int64) { c.send(response{id: c.id, value: value}) }

// send answers. A process that is gone needs no answer.
func (c *call) send(r response) {
	_, _ = ioctl(c.b.fd, ioctlSend, unsafe.Pointer(&r))
}

// finish answers with what carrying out the call gave.
func (c *call) finish(err error) {
	if err == nil {
		c.succeed(0)
		return
	}
	c.failWith(err)
}

func (c *call) failWith(err error) {
	var e unix.Errno
	if !errors.As(err, &e) {
		e = unix.EACCES
	}
	c.fail(e)
}

// give puts a descriptor into the process and answers with its number, after it has closed
// the broker's own. Whoever closes the last descriptor of an end of a pipe, of a lock, or of
// a program that was written may rely on its effect at once. A command that this program
// starts in the same moment still has a copy of the broker's, until it closes what is not its own.
//
// No signal comes between the two steps: the filter lets a process wait for its answer until
// it is killed. The descriptor is then left only to a process that shares the table of
// descriptors with the one that was killed, once for each of those.
func (c *call) give(fd int, closeOnExec bool) {
	number, err := c.put(fd, 0, closeOnExec)
	unix.Close(fd)
	if err != nil {
		c.failWith(err) // too many open files, for instance
		return
	}
	c.succeed(int64(number))
}

// giveToRead is give for a file that is only read. The process goes on a little before the
// broker's own descriptor is closed, which spares it and the broker a fifth of their time.
func (c *call) giveToRead(fd int, closeOnExec bool) {
	if _, err := c.put(fd, sendToo, closeOnExec); err != nil && !errors.Is(err, unix.ENOENT) {
		c.failWith(err)
	}
	unix.Close(fd)
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
