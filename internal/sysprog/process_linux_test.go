//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

func sleeper(b Block) { execve(b, "/bin/sleep", "sleep", "60") }

func TestSignalAndWait(t *testing.T) {
	proc := start(t, program(func(_ *Program, b Block) { resetSignals(b); sleeper(b) }), Options{})
	if err := proc.Signal(0); err != nil {
		t.Error(err)
	}
	if proc.PidFD() < 0 {
		t.Error("no pidfd")
	}
	if err := proc.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if got := wait(t, proc); got != 128+int(unix.SIGTERM) {
		t.Errorf("ended with %d, want SIGTERM", got)
	}
	if err := proc.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v", err)
	}
	if _, err := proc.Wait(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a second wait: %v", err)
	}
	if proc.PidFD() != -1 {
		t.Error("the pidfd is still there")
	}
}

func TestWaitWhileSignalling(t *testing.T) {
	proc := start(t, program(func(_ *Program, b Block) { resetSignals(b); sleeper(b) }), Options{})
	done := make(chan int)
	go func() { done <- wait(t, proc) }()
	for {
		select {
		case got := <-done:
			if got != 128+int(unix.SIGKILL) {
				t.Errorf("ended with %d", got)
			}
			return
		default:
			if err := proc.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
	}
}

func TestRelease(t *testing.T) {
	proc := start(t, program(func(_ *Program, b Block) { b.Exit(4) }), Options{})
	proc.Release()
	proc.Release()
	if err := proc.Signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the release: %v", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(proc.Pid, &status, 0, nil); err != nil || status.ExitStatus() != 4 {
		t.Errorf("%v, status %#x", err, uint32(status))
	}
}

// The status is lost, but not the fact, and nothing hangs or is mixed up.
func TestStatusTakenElsewhere(t *testing.T) {
	p := program(func(_ *Program, b Block) { b.Exit(3) })
	proc := start(t, p, Options{})
	if _, err := unix.Wait4(proc.Pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(); !errors.Is(err, ErrNoStatus) {
		t.Errorf("%v, want ErrNoStatus", err)
	}
}

// The runtime cannot undo SIG_IGN for SIGCHLD, so this has a process of its own.
func TestSigchldIgnored(t *testing.T) {
	needKernel(t)
	if os.Getenv("SYSPROG_IGNORE") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestSigchldIgnored$", "-test.v")
		cmd.Env = append(os.Environ(), "SYSPROG_IGNORE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(unix.SIGCHLD)
	proc := start(t, program(func(_ *Program, b Block) { resetSignals(b); nanosleep(b, 1e7); b.Exit(3) }), Options{})
	if _, err := proc.Wait(); !errors.Is(err, ErrNoStatus) {
		t.Errorf("%v, want ErrNoStatus", err)
	}
	failure(t, program(func(_ *Program, b Block) { b.Chdir("/no/such"); b.Exit(0) }), Options{})
}

// A stop of the world does not wait for a slow step: collections are over before
// a step is that takes longer than they ever could.
func TestStopTheWorld(t *testing.T) {
	needKernel(t)
	ctx, cancel := context.WithCancel(context.Background())
	var proc *Process
	var err error
	done := make(chan struct{})
	began := make(chan struct{})
	go func() {
		defer close(done)
		p := program(func(_ *Program, b Block) { b.SyncParent(); nanosleep(b, uint64(time.Minute)); b.Exit(0) })
		proc, err = Run(ctx, p, Options{SyncParent: func(*Child) error { close(began); return nil }})
	}()
	<-began
	for range 20 {
		runtime.GC() // stops the world several times
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	select {
	case <-done:
		t.Errorf("the program was over: %v %v", proc, err)
	default:
	}
	cancel()
	<-done
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want a cancellation", err)
	}
}

// The same with a single P, where SyncParent could not run if Run kept it.
func TestSinglePIsReleased(t *testing.T) {
	needKernel(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := program(func(_ *Program, b Block) { b.SyncParent(); b.Exit(2) })
	for range 20 {
		if got := exitCode(t, p, Options{SyncParent: func(*Child) error { runtime.GC(); return nil }}); got != 2 {
			t.Fatalf("exit code %d", got)
		}
	}
}

// The "dumpable" flag belongs to the memory, which is ours too.
func TestDumpableIsKept(t *testing.T) {
	needKernel(t)
	testenv.Need(t, "root")
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || before != 1 {
		t.Skipf("the flag is %d, %v", before, err)
	}
	clears := program(func(_ *Program, b Block) {
		b.Call("setgroups", Const(0), null())
		b.Call("setresgid", Const(54321), Const(54321), Const(54321))
		b.Call("setresuid", Const(54321), Const(54321), Const(54321))
		execve(b, "/bin/sh", "sh", "-c", "exit $(id -u | cut -c1-2)")
	})
	for range 3 {
		if got := exitCode(t, clears, Options{Env: []string{"PATH=/usr/bin:/bin"}}); got != 54 {
			t.Errorf("exit code %d: the user is not 54321", got)
		}
	}
	if after, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || after != 1 {
		t.Errorf("the flag is %d, %v", after, err)
	}
}

// The death signal is that of the whole caller as long as the program runs: a
// process that is killed leaves no child waiting for it.
func TestCallerDies(t *testing.T) {
	needKernel(t)
	if os.Getenv("SYSPROG_DIE") != "" {
		for range 3 {
			go Run(context.Background(), program(func(_ *Program, b Block) { b.SyncParent(); b.Exit(0) }), Options{
				SyncParent: func(*Child) error { os.Stdout.WriteString("waiting\n"); select {} },
			})
		}
		select {}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCallerDies$")
	cmd.Env = append(os.Environ(), "SYSPROG_DIE=1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, len("waiting\n")*3)
	for n := 0; n < len(buf); {
		m, err := r.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	cmd.Process.Kill()
	cmd.Wait()
	// The children have the pipe as their standard output. It ends when they do.
	r.SetReadDeadline(time.Now().Add(testenv.Patience))
	if n, err := r.Read(buf); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a child outlived its parent: %d, %v", n, err)
	}
}
