package machine

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

// A11: what was found out without a filter of system calls is not remembered under one.
func TestProbeKeyUnderAFilter(t *testing.T) {
	s := &host.Snapshot{Kernel: "x"}
	before, ok := probeKeyFor(s, "")
	if !ok {
		t.Fatal("there is no key")
	}
	var keys []probeKey
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with its filters
		code := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
		program := unix.SockFprog{Len: 1, Filter: &code[0]}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		for range 2 { // one over the other
			if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
				t.Error(err)
				return
			}
			key, _ := probeKeyFor(s, "")
			keys = append(keys, key)
		}
	}()
	<-done
	if len(keys) != 2 || keys[0] == before || keys[1] == keys[0] || keys[1] == before || keys[1].Seccomp != unix.SECCOMP_MODE_FILTER {
		t.Errorf("the keys are %+v, before %+v", keys, before)
	}
}
