//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

// rule is the origin of the steps of tests.
var rule = policy.Origin{Layer: policy.LayerUser, Source: "policy.yaml", Line: 12}

// program builds a program whose steps have one label.
func program(build func(p *Program, b Block)) *Program {
	p := &Program{}
	build(p, p.For(rule, "test"))
	return p
}

// start runs a program that has to start.
func start(t testing.TB, p *Program, o Options) *Process {
	t.Helper()
	needKernel(t)
	proc, err := Run(context.Background(), p, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	return proc
}

// exitCode runs a program and returns the exit code of its process, or 128 and
// the number of the signal that ended it.
func exitCode(t testing.TB, p *Program, o Options) int {
	t.Helper()
	return wait(t, start(t, p, o))
}

func wait(t testing.TB, proc *Process) int {
	t.Helper()
	status, err := proc.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// failure runs a program that has to fail at a step.
func failure(t testing.TB, p *Program, o Options) *StepError {
	t.Helper()
	needKernel(t)
	proc, err := Run(context.Background(), p, o)
	if err == nil {
		t.Fatalf("started, and ended with %d; want an error\n%s", wait(t, proc), p)
	}
	var step *StepError
	if !errors.As(err, &step) {
		t.Fatalf("%v (%T), want a StepError", err, err)
	}
	return step
}

// emulated reports whether this is qemu's user mode, in which a vfork is a fork
// that shares no memory, and a pidfd is, up to some version, refused. The
// interpreter alone runs there: see TestInterpreter.
var emulated = sync.OnceValue(func() bool {
	proc, err := Run(context.Background(), program(func(_ *Program, b Block) { b.Chdir("/no/such"); b.Exit(0) }), Options{})
	if err == nil {
		proc.Wait()
		return true
	}
	return isErrno(err, unix.EINVAL)
})

// needKernel skips a test in an emulator.
func needKernel(t testing.TB) {
	t.Helper()
	if emulated() {
		t.Skip("this is an emulator that does not share memory with a child")
	}
}

// output runs a program that has standard output as its file 0, and returns
// what is written there and the exit code.
func output(t testing.TB, p *Program, o Options) (string, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o.Files = append([]int{int(w.Fd())}, o.Files...)
	proc := start(t, p, o)
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), wait(t, proc)
}

// shell ends a program in a shell script.
func shell(b Block, script string) { execve(b, "/bin/sh", "sh", "-c", script) }

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// noChildren fails the test if this process has a child left.
func noChildren(t testing.TB) {
	t.Helper()
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
	if !errors.Is(err, unix.ECHILD) {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}

// thread returns a value of /proc/thread-self/status.
func thread(t testing.TB, key string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s", key)
	return ""
}

func isErrno(err error, e syscall.Errno) bool { return errors.Is(err, e) }
