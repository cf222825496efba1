//go:build amd64 || arm64

package notify

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// turns decides at which processor a thread goes on when its call is answered.
//
// With syncWakeUp a call wakes the broker on the processor of the thread, and an answer wakes the
// thread on that of the broker: no other processor has to be woken, which takes several times
// as long as the call. But if several threads run, one whose call had to wait for another's
// goes on where that one does, and stays there: all gather on one processor, and the others
// are idle. With two processors `make -j2` took 2.1 times as long as outside, and takes 1.5 times.
// So while several threads run, the kernel chooses the processor for each answer.
type turns struct {
	sync bool // the kernel knows syncWakeUp
	last int  // the thread that called last
	left int  // for how many more calls the kernel chooses
}

// spreadFor is for how many calls the kernel chooses once two threads ran at a time.
const spreadFor = 64

// begin asks the kernel for syncWakeUp.
func (t *turns) begin(listener int) { t.sync = setFlags(listener, syncWakeUp) }

// spread notes a call of a thread, and reports whether the kernel is to choose the processor
// for its answer. back: the thread has called before. A shell that comes back after its child has ended
// runs alone.
func (t *turns) spread(thread int, back bool) bool {
	if thread != t.last {
		if back && t.left < spreadFor/2 && runs(t.last) {
			t.left = spreadFor
		}
		t.last = thread
	}
	t.left = max(0, t.left-1)
	return t.sync && t.left > 0
}

// runs reports whether a thread runs, or waits for a processor.
func runs(thread int) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(thread)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buf [64]byte // the name is in parentheses, and has at most 15 bytes
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return false
	}
	_, state, found := bytes.Cut(buf[:n], []byte(") "))
	return found && bytes.HasPrefix(state, []byte("R"))
}

// setFlags sets the flags of a listener, and reports whether the kernel knows them.
func setFlags(listener int, flags uintptr) bool {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), ioctlSetFlags, flags)
	return e == 0
}
