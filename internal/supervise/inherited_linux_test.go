package supervise

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// N10: the mask for new files is that of the thread that asks, whichever was asked
// about before, and after that one has ended.
func TestOwnUmask(t *testing.T) {
	r := umaskReader{tid: -1, status: -1}
	defer func() { unix.Close(r.status) }()
	ordinary := modeOfNew(t)
	for _, other := range []int{0o077, 0} {
		if got := r.get(); got != ordinary {
			t.Errorf("umask %#o, want %#o", got, ordinary)
		}
		onThread(t, other, func() {
			if got := r.get(); got != other {
				t.Errorf("umask %#o of a thread of its own, want %#o", got, other)
			}
		})
	}
	if got := r.get(); got != ordinary {
		t.Errorf("umask %#o when the other thread has ended, want %#o", got, ordinary)
	}
}

// N10: a change of the mask is seen at once.
func TestUmaskChanges(t *testing.T) {
	onThread(t, 0o022, func() {
		before := whatIsInherited()
		unix.Umask(0o027)
		if after := whatIsInherited(); before.umask != 0o022 || after.umask != 0o027 || after == before {
			t.Errorf("umask %#o, and then %#o", before.umask, after.umask)
		}
	})
}

// onThread calls f on a thread with a mask of its own, and waits until both are done.
func onThread(t *testing.T, umask int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with this
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			unix.Umask(umask)
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// modeOfNew finds out the mask of this process by what it takes from a new file.
func modeOfNew(t *testing.T) int {
	t.Helper()
	f, err := os.OpenFile(t.TempDir()+"/new", os.O_CREATE, 0o777)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return 0o777 &^ int(info.Mode().Perm())
}
