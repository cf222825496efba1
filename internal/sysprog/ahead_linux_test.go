//go:build amd64 || arm64

package sysprog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// begin makes a process that the test has to pass to Run, or to discard.
func begin(t testing.TB, flags uint64, mapIdentity bool) *Ahead {
	t.Helper()
	needKernel(t)
	a, err := Begin(flags, mapIdentity)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// pipe returns one whose ends are closed at the end of the test at the latest.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// gone waits until nothing is left of processes that were discarded.
func gone(t testing.TB, fds int) {
	t.Helper()
	if !testenv.Becomes(func() bool { return descriptors(t) <= fds }) {
		t.Fatalf("%d descriptors, %d before", descriptors(t), fds)
	}
	noChildren(t)
}

// N10: a process that was made before its program runs it with all descriptors that
// were opened since, and nothing that it opens is left in its caller.
func TestAhead(t *testing.T) {
	pipe(t) // the first one makes the runtime open descriptors of its own
	fds := descriptors(t)
	a := begin(t, 0, false)
	r, w := pipe(t)
	p := &Program{}
	out := p.AddFile("out")
	b := p.For(rule, "test")
	b.Openat(Cwd(), "/dev/null", OpenRead, 0)
	b.Call("dup3", out, Const(1), Const(0))
	b.CloseOthers(0, 1, 2)
	b.Umask(0o22) // its record comes right after those of the ranges
	resetSignals(b)
	shell(b, "echo $WORD; exit 7")
	if got := exitCode(t, p, Options{Files: []int{int(w.Fd())}, Env: []string{"WORD=here"}, Ahead: a}); got != 7 {
		t.Errorf("exit code %d", got)
	}
	w.Close()
	if text, err := io.ReadAll(r); err != nil || string(text) != "here\n" {
		t.Errorf("%q, %v", text, err)
	}
	r.Close()
	gone(t, fds)
}

// The process is in its namespaces, with its ids mapped, and the part of the program
// that would wait for that is left out.
func TestAheadMaps(t *testing.T) {
	needKernel(t)
	testenv.Need(t, "userns")
	if os.Getuid() != 0 {
		t.Skip("only root maps ids for others")
	}
	a := begin(t, NewUser|NewPID|NewMount|NewNetwork, true)
	p := program(func(_ *Program, b Block) {
		b.SyncParent()
		resetSignals(b)
		shell(b, `read -r a b c </proc/self/uid_map; test $$ = 1 -a "$a $b" = "0 0" -a $c -gt 1`)
	})
	asked := false
	o := Options{CloneFlags: NewUser | NewPID | NewMount | NewNetwork, Ahead: a, SyncParent: func(*Child) error { asked = true; return nil }}
	if got := exitCode(t, p, o); got != 0 {
		t.Errorf("exit code %d", got)
	}
	if asked {
		t.Error("the parent was asked, and the ids had been mapped")
	}
}

// A step that fails is the one that is named.
func TestAheadStepError(t *testing.T) {
	fds := descriptors(t)
	p := program(func(_ *Program, b Block) { b.Umask(0o22); b.Chdir("/no/such"); b.Exit(0) })
	_, err := Run(context.Background(), p, Options{Ahead: begin(t, 0, false)})
	var step *StepError
	if !errors.As(err, &step) || step.Index != 1 || !isErrno(err, unix.ENOENT) {
		t.Errorf("%v, want ENOENT of step 1", err)
	}
	gone(t, fds)
}

// What a thread has of its own its processes have, too, and no other thread makes
// them. N10
func TestAheadOfThread(t *testing.T) {
	needKernel(t)
	fds := descriptors(t)
	for _, c := range []struct {
		name, script string
		change       func() error
	}{
		{"umask", "test $(umask) = 0067", func() error {
			defer unix.Umask(0o67)
			return unix.Unshare(unix.CLONE_FS)
		}},
		{"priority", "test $(nice) = 11", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 11) }},
		{"privileges", "grep -q 'NoNewPrivs:.1' /proc/self/status", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // for good: the thread ends with this
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			p := program(func(_ *Program, b Block) { resetSignals(b); shell(b, c.script) })
			if got := exitCode(t, p, Options{Ahead: begin(t, 0, false), Env: []string{"PATH=" + os.Getenv("PATH")}}); got != 0 {
				t.Errorf("%s: exit code %d", c.script, got)
			}
		})
	}
	gone(t, fds)
}

// A process that is not what the program needs is ended, and another one is made.
func TestAheadUnfit(t *testing.T) {
	needKernel(t)
	testenv.Need(t, "userns")
	fds := descriptors(t)
	runs := program(func(_ *Program, b Block) { resetSignals(b); shell(b, "exit 3") })
	for _, o := range []Options{
		{CloneFlags: NewUser},
		{Ahead: begin(t, NewUser, false)},
	} {
		if o.Ahead == nil {
			o.Ahead = begin(t, 0, false)
		}
		if got := exitCode(t, runs, o); got != 3 {
			t.Errorf("exit code %d", got)
		}
	}
	// One that waits for its parent twice, or later, cannot leave that out.
	twice := program(func(_ *Program, b Block) { b.SyncParent(); b.SyncParent(); b.Exit(4) })
	later := program(func(_ *Program, b Block) { b.Umask(0o22); b.SyncParent(); b.Exit(4) })
	for _, p := range []*Program{twice, later} {
		asked := 0
		got := exitCode(t, p, Options{Ahead: begin(t, 0, false), SyncParent: func(*Child) error { asked++; return nil }})
		if got != 4 || asked == 0 {
			t.Errorf("exit code %d, the parent was asked %d times", got, asked)
		}
	}
	gone(t, fds)
}

// One that waited too long has ended, and a new one takes its place.
func TestAheadTooLate(t *testing.T) {
	fds := descriptors(t)
	a := begin(t, 0, false)
	select {
	case <-a.returned:
	case <-time.After(testenv.Patience):
		t.Fatal("the process waits for ever")
	}
	p := program(func(_ *Program, b Block) { resetSignals(b); shell(b, "exit 3") })
	if got := exitCode(t, p, Options{Ahead: a}); got != 3 {
		t.Errorf("exit code %d", got)
	}
	gone(t, fds)
}

// Nothing is left of one that is discarded, at whatever time, nor of one that cannot
// be made.
func TestAheadDiscard(t *testing.T) {
	fds := descriptors(t)
	for i := range 50 {
		a := begin(t, 0, false)
		time.Sleep(time.Duration(i) * 20 * time.Microsecond) // the moment is what varies
		a.Discard()
		a.Discard()
	}
	(*Ahead)(nil).Discard()
	gone(t, fds)
	if _, err := Begin(cloneVM, false); err == nil {
		t.Error("flags that make no namespaces are taken")
	}
}

// The end of the context ends the process.
func TestAheadContext(t *testing.T) {
	fds := descriptors(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	p := program(func(_ *Program, b Block) { nanosleep(b, uint64(time.Minute)); b.Exit(0) })
	if _, err := Run(ctx, p, Options{Ahead: begin(t, 0, false)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	gone(t, fds)
}

// F12: a process that waits for its program ends with its caller.
func TestAheadEndsWithCaller(t *testing.T) {
	const variable = "SYSPROG_AHEAD"
	if os.Getenv(variable) != "" {
		a := begin(t, 0, false)
		<-a.ready
		pid, err := pidOf(int(a.run.control.pidFD))
		fmt.Println("pid", pid, err)
		select {}
	}
	needKernel(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAheadEndsWithCaller$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	fields := strings.Fields(line)
	if len(fields) != 3 {
		t.Fatalf("%q", line)
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	testenv.Eventually(t, "the process ends", func() bool { return !runs(pid) })
	t.Log("it ended after", time.Since(killed))
	// In a container this test may be the first process, which orphans are left to.
	_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
}

// runs reports whether a process has not ended; whoever adopted it may not have
// reaped it yet.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// N10: many at the same time, with the collector at work.
func TestAheadStress(t *testing.T) {
	needKernel(t)
	launches, workers := 3000, 4
	if testing.Short() {
		launches = 300
	}
	fds := descriptors(t)
	stop := churn()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for n := range launches / workers {
				if err := launchAhead(n%3 == 0, (worker+n)%100); err != nil {
					t.Errorf("launch %d: %v", n, err)
					return
				}
			}
		})
	}
	group.Wait()
	stop()
	gone(t, fds)
}

// launchAhead runs a script by a process that was made ahead, or another one.
func launchAhead(discard bool, code int) error {
	a, err := Begin(0, false)
	if err != nil {
		return err
	}
	deep(code % 50)
	if discard {
		a.Discard()
		a = nil
	}
	p := program(func(_ *Program, b Block) {
		b.CloseOthers(0, 1, 2)
		resetSignals(b)
		shell(b, "exit $CODE")
	})
	return expectCode(p, Options{Ahead: a, Env: []string{"CODE=" + strconv.Itoa(code), "FILL=" + strings.Repeat("x", 4000)}}, code)
}
