package apitest

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A granted folder that is exchanged with a link to one outside after the policy
// was resolved, again and again while the sandbox is made, is never mistaken:
// nothing outside is written. In each launch the folder changes many times.
func TestSwapRace(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	launches := 400
	if testing.Short() {
		launches = 100
	}
	dir := workspace(t)
	ws, granted, link, outside := dir+"/ws", dir+"/granted", dir+"/link", dir+"/outside"
	for _, d := range []string{ws, granted, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	p := policy.Workspace(ws).With(policy.WithBackend("native"), policy.AllowWrite(granted))
	session := open(t, p, ws)
	ran, refused, swaps := 0, 0, int64(0)
	for range launches {
		cmd := session.Command(t.Context(), "/bin/sh", "-c", "echo x > ../granted/planted")
		var stop func() int64
		cmd.Prepared = func(*plan.Plan, *backend.Launch) { stop = swapping(t, granted, link) }
		if err := cmd.Run(); err == nil {
			ran++
		} else {
			refused++
		}
		swaps += stop()
		if info, err := os.Lstat(granted); err != nil || !info.IsDir() {
			exchange(t, granted, link)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside holds %v, %v", left, err)
	}
	if ran == 0 || refused == 0 || swaps < 2000 {
		t.Errorf("%d launches ran and %d were refused, with %d swaps: the race was not tried", ran, refused, swaps)
	}
	t.Logf("%d launches ran and %d were refused, with %d swaps", ran, refused, swaps)
}

// swapping exchanges two names until it is stopped, and then says how often
// it did.
func swapping(t *testing.T, a, b string) (stop func() int64) {
	swaps := int64(0)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; !done.Load(); swaps++ {
			exchange(t, a, b)
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 50_000}, nil)
		}
	})
	return func() int64 {
		done.Store(true)
		wg.Wait()
		return swaps
	}
}

func exchange(t *testing.T, a, b string) {
	t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Errorf("exchange %s and %s: %v", filepath.Base(a), filepath.Base(b), err)
	}
}
