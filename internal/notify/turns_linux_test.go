//go:build amd64 || arm64

package notify

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel chooses the processor of an answer after a thread came back while another ran, and
// not after one came back to a thread that waits, or that has ended.
func TestTurns(t *testing.T) {
	var stop atomic.Bool
	defer stop.Store(true)
	busy := onThread(t, func() {
		for !stop.Load() {
			_ = unix.Getppid()
		}
	})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[1])
	waiting := onThread(t, func() {
		defer unix.Close(pipe[0])
		_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the other end is closed
	})
	for runs(waiting) {
		runtime.Gosched()
	}
	const caller = 1
	after := func(other int) (spread int) {
		b := turns{sync: true}
		b.spread(caller, false)
		b.spread(other, false)
		for b.spread(caller, true) {
			spread++
		}
		return spread
	}
	if got := after(busy); got == 0 || got > spreadFor {
		t.Errorf("after a thread that runs: %d calls, want about %d", got, spreadFor)
	}
	if got := after(waiting); got != 0 {
		t.Errorf("after a thread that waits: %d calls", got)
	}
	if got := after(1 << 30); got != 0 {
		t.Errorf("after a thread that has ended: %d calls", got)
	}
}

// onThread runs f on a thread of its own, and returns its number.
func onThread(t *testing.T, f func()) int {
	t.Helper()
	number := make(chan int)
	go func() {
		runtime.LockOSThread()
		number <- unix.Gettid()
		f()
	}()
	return <-number
}
