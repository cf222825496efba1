//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// churn keeps the collector busy until the function that it returns is called.
func churn() (stop func() (collections uint32)) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		var keep [64][]*int
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			list := make([]*int, 1000)
			for j := range list {
				list[j] = new(int)
			}
			keep[i%len(keep)] = list
			if i%32 == 0 {
				runtime.GC()
			}
		}
	})
	return func() uint32 {
		close(done)
		group.Wait()
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
}

// deep makes the stack of a goroutine grow and be moved.
func deep(n int) int {
	var pad [256]byte
	if n == 0 {
		return int(pad[0])
	}
	return deep(n-1) + int(pad[n%len(pad)])
}

func threads(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// N10: thousands of launches, at the same time, with the collector at work: none
// fails, and nothing is left of them.
func TestStress(t *testing.T) {
	needKernel(t)
	launches, workers := 12_000, 6
	if testing.Short() {
		launches = 1200
	}
	programs := stressPrograms()
	runtime.GC()
	fds := descriptors(t)
	stop := churn()
	var next, failed atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= int64(launches); n = next.Add(1) {
				deep(int(n % 50))
				if err := programs[n%int64(len(programs))](int(n % 100)); err != nil && failed.Add(1) < 10 {
					t.Errorf("launch %d: %v", n, err)
				}
			}
		})
	}
	group.Wait()
	collections := stop()
	if collections < 10 {
		t.Errorf("only %d collections: the test shows nothing", collections)
	}
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	// The runtime keeps threads; each worker and each SyncParent may have made one.
	if now := threads(t); now > 4*workers+20 {
		t.Errorf("%d threads", now)
	}
	noChildren(t)
	t.Logf("%d launches, %d collections, %d failures", launches, collections, failed.Load())
}

// stressPrograms are launches that check what came of them: the environment and
// the filter get through whole, errors are those of their own step, the parent
// is asked.
func stressPrograms() []func(code int) error {
	env := func(code int) []string {
		return []string{fmt.Sprintf("CODE=%d", code), "FILL=" + fmt.Sprint(make([]int, 200))}
	}
	executes := func(code int) error {
		p := program(func(_ *Program, b Block) {
			b.NoNewPrivs()
			b.Seccomp(refuseFilter(), 0)
			b.CloseOthers(0, 1, 2)
			resetSignals(b)
			shell(b, "exit $CODE")
		})
		return expectCode(p, Options{Env: env(code)}, code)
	}
	fails := func(code int) error {
		p := program(func(_ *Program, b Block) {
			for range code {
				b.Umask(0o22)
			}
			b.Chdir("/no/such")
			b.Exit(0)
		})
		_, err := Run(context.Background(), p, Options{})
		var step *StepError
		if !errors.As(err, &step) || step.Index != code || !isErrno(err, unix.ENOENT) {
			return fmt.Errorf("%w, want ENOENT of step %d", err, code)
		}
		return nil
	}
	syncs := func(code int) error {
		p := program(func(_ *Program, b Block) { b.CloseOthers(); b.SyncParent(); b.Exit(code) })
		asked := 0
		err := expectCode(p, Options{SyncParent: func(c *Child) error { asked = c.Pid; return nil }}, code)
		if err == nil && asked == 0 {
			err = errors.New("the parent was not asked")
		}
		return err
	}
	return []func(int) error{executes, fails, executes, syncs}
}

func expectCode(p *Program, o Options, code int) error {
	proc, err := Run(context.Background(), p, o)
	if err != nil {
		return err
	}
	status, err := proc.Wait()
	if err == nil && (!status.Exited() || status.ExitStatus() != code) {
		err = fmt.Errorf("wait status %#x, want exit code %d", uint32(status), code)
	}
	return err
}

// The same for whole sandboxes, of which namespaces allow fewer per second.
func TestStressSandboxes(t *testing.T) {
	needKernel(t)
	testenv.Need(t, "userns")
	sandboxes := 400
	if testing.Short() {
		sandboxes = 40
	}
	if _, err := initFile(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runtime.GC()
	fds := descriptors(t)
	stop := churn()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for n := next.Add(1); n <= int64(sandboxes) && !t.Failed(); n = next.Add(1) {
				code := int(n % 100)
				if text, got := newBox(t, dir, fmt.Sprintf("echo %d; exit %d", n, code)).run(); got != code || text != fmt.Sprintln(n) {
					t.Errorf("sandbox %d: %q, exit code %d", n, text, got)
				}
			}
		})
	}
	group.Wait()
	stop()
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors, %d before", now, fds)
	}
	noChildren(t)
}
