//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

func TestExitCode(t *testing.T) {
	if got := exitCode(t, program(func(_ *Program, b Block) { b.Exit(41) }), Options{}); got != 41 {
		t.Errorf("exit code %d, want 41", got)
	}
	p := program(func(_ *Program, b Block) { resetSignals(b); shell(b, "exit $CODE") })
	if got := exitCode(t, p, Options{Env: []string{"A=b", "CODE=42", "Z="}}); got != 42 {
		t.Errorf("exit code %d, want 42", got)
	}
}

// W2: values that are not UTF-8 survive, and nothing is added.
func TestEnvironment(t *testing.T) {
	env := []string{"A=\xff\xfe", "LONG=" + strings.Repeat("x", 100_000), "EMPTY="}
	p := program(func(p *Program, b Block) {
		b.Dup3(p.AddFile("output"), 1)
		execve(b, "/usr/bin/env", "env", "-0")
	})
	got, code := output(t, p, Options{Env: env})
	if want := strings.Join(env, "\x00") + "\x00"; got != want || code != 0 {
		t.Errorf("exit code %d, environment %.200q", code, got)
	}
	if got, _ = output(t, p, Options{}); got != "" {
		t.Errorf("an empty environment is %q", got)
	}
}

// Results of steps are arguments of later ones, in every position.
func TestResults(t *testing.T) {
	p := program(func(p *Program, b Block) {
		out := p.AddFile("output")
		a := b.MoveAbove(out, 50)
		copied := b.MoveAbove(a, 60)
		b.CallResult("fcntl", copied, Named(dupCloexec, ""), copied) // two results in one call
		b.Write(copied, "one ")
		b.Close(a)
		b.Ignoring(EBADF).Write(a, "lost")
		b.Write(copied, "two")
		b.Exit(0)
	})
	if got, code := output(t, p, Options{}); got != "one two" || code != 0 {
		t.Errorf("%q, exit code %d", got, code)
	}
}

func TestIgnoredErrors(t *testing.T) {
	needKernel(t)
	p := program(func(_ *Program, b Block) {
		b.Ignoring(EEXIST, ENOENT, EINVAL).Chdir("/no/such")
		fd := b.Ignoring(ENOENT).Openat(Cwd(), "/no/such", OpenRead, 0)
		b.Ignoring(ENOENT).WriteFile("/no/such/either", "x")
		b.Ignoring(EBADF).Fchdir(fd)
		b.Exit(7)
	})
	if got := exitCode(t, p, Options{}); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
	p = program(func(_ *Program, b Block) { b.Ignoring(EEXIST, EPERM).Chdir("/no/such"); b.Exit(7) })
	if err := failure(t, p, Options{}); !isErrno(err, unix.ENOENT) {
		t.Errorf("%v, want ENOENT", err)
	}
	// A failed descriptor is -1 and never AT_FDCWD, which -100 would be.
	p = program(func(_ *Program, b Block) {
		fd := b.Ignoring(ENOENT).Openat(Cwd(), "/no/such", OpenRead, 0)
		b.Openat(fd, ".", OpenPath, 0)
		b.Exit(7)
	})
	if err := failure(t, p, Options{}); err.Index != 1 || !isErrno(err, unix.EBADF) {
		t.Errorf("%v, want EBADF of step 1", err)
	}
}

// A11: the step that failed is named, with its error and its rule.
func TestFailingStep(t *testing.T) {
	needKernel(t)
	p := &Program{}
	p.For(policy.Origin{}, "close").CloseOthers(0, 1, 2) // several records for one step
	p.For(policy.Origin{}, "first").Umask(0o22)
	p.For(rule, "go to /no/such").Chdir("/no/such")
	p.For(policy.Origin{}, "never").Exit(0)
	err := failure(t, p, Options{})
	if err.Index != 2 || err.Step.Label != "go to /no/such" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%+v", err)
	}
	if want := "step 2, go to /no/such: chdir: ENOENT (rule policy.yaml:12)"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	noChildren(t)
}

func TestFailingExec(t *testing.T) {
	needKernel(t)
	text := t.TempDir() + "/text"
	if err := os.WriteFile(text, []byte("no binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Errno{
		"/no/such": unix.ENOENT, "/etc/passwd": unix.EACCES, text: unix.ENOEXEC, "/etc/passwd/x": unix.ENOTDIR,
	} {
		err := failure(t, program(func(_ *Program, b Block) { b.Setsid(); execve(b, path, "x") }), Options{})
		if err.Index != 1 || err.Step.Call != "execve" || !isErrno(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	// One that fails may be followed by another.
	p := program(func(_ *Program, b Block) {
		execve(b.Ignoring(ENOENT), "/no/such", "x")
		shell(b, "exit 9")
	})
	if got := exitCode(t, p, Options{}); got != 9 {
		t.Errorf("exit code %d, want 9", got)
	}
	noChildren(t)
}

func TestWantedResult(t *testing.T) {
	needKernel(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := program(func(p *Program, b Block) { b.Read(p.AddFile("null"), 1); b.Exit(0) })
	got := failure(t, p, Options{Files: []int{int(null.Fd())}})
	if got.Errno != 0 || got.Result != 0 || !strings.Contains(got.Error(), "read: returned 0, want 1") {
		t.Errorf("%+v: %v", got, got)
	}
}

// A child that is killed before the program is over did not start.
func TestKilledInSetup(t *testing.T) {
	needKernel(t)
	p := program(func(_ *Program, b Block) {
		pid := b.CallResult("getpid")
		b.Call("kill", pid, Const(sigKill))
		b.Exit(0)
	})
	err := failure(t, p, Options{})
	if err.Index != 1 || err.Signal != unix.SIGKILL || !strings.Contains(err.Error(), "kill: killed by signal 9") {
		t.Errorf("%+v: %v", err, err)
	}
	noChildren(t)
}

// A11: the kernel's refusal to make namespaces is distinguished from a failing step.
func TestCloneRefused(t *testing.T) {
	needKernel(t)
	testenv.AlsoAsUser(t)
	if _, err := Run(context.Background(), program(func(_ *Program, b Block) { b.Exit(0) }), Options{CloneFlags: cloneVM}); err == nil ||
		!strings.Contains(err.Error(), "do not make namespaces") {
		t.Errorf("a flag that is no namespace: %v", err)
	}
	if os.Geteuid() == 0 {
		return
	}
	// A pid namespace without a user namespace is not for an ordinary user.
	_, err := Run(context.Background(), program(func(_ *Program, b Block) { b.Exit(0) }), Options{CloneFlags: NewPID})
	var refused *CloneError
	if !errors.As(err, &refused) || !isErrno(err, unix.EPERM) {
		t.Errorf("%v, want a CloneError with EPERM", err)
	}
	noChildren(t)
}

func TestOptionsAreChecked(t *testing.T) {
	files := program(func(p *Program, b Block) { b.Close(p.AddFile("one")); b.Exit(0) })
	waits := program(func(_ *Program, b Block) { b.SyncParent(); b.Exit(0) })
	plain := program(func(_ *Program, b Block) { b.Exit(0) })
	canceled, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("no time")
	cancel(cause)
	for _, tt := range []struct {
		ctx  context.Context
		p    *Program
		o    Options
		want string
	}{
		{context.Background(), files, Options{}, "has 1 files, and 0 descriptors"},
		{context.Background(), files, Options{Files: []int{-1}}, "file 0 (one): -1"},
		{context.Background(), waits, Options{}, "SyncParent is given: false"},
		{context.Background(), plain, Options{SyncParent: func(*Child) error { return nil }}, "SyncParent is given: true"},
		{context.Background(), plain, Options{Env: []string{"a\x00b"}}, "NUL byte"},
		{context.Background(), &Program{}, Options{}, "empty"},
		{canceled, plain, Options{}, "no time"},
	} {
		if _, err := Run(tt.ctx, tt.p, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// The child runs with all signals blocked, so that no handler of this process
// can run in it; resetSignals opens the mask, with no handler left and none ignored.
func TestSignals(t *testing.T) {
	const script = `while read -r line; do case $line in SigBlk*|SigIgn*) echo "$line";; esac; done </proc/self/status`
	mask := func(reset bool) string {
		p := program(func(p *Program, b Block) {
			b.Dup3(p.AddFile("output"), 1)
			if reset {
				resetSignals(b)
			}
			shell(b, script)
		})
		text, _ := output(t, p, Options{})
		return strings.Join(strings.Fields(text), " ")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := thread(t, "SigBlk")
	if got := mask(false); !strings.Contains(got, "SigBlk: fffffffe7ffbfeff") && !strings.Contains(got, "SigBlk: fffffffffffbfeff") {
		t.Errorf("without a reset: %s", got)
	}
	if got := mask(true); got != "SigBlk: 0000000000000000 SigIgn: 0000000000000000" {
		t.Errorf("after a reset: %s", got)
	}
	if after := thread(t, "SigBlk"); after != before {
		t.Errorf("this thread blocks %s, and %s before", after, before)
	}
}

// peers, mistake 1: what this process has open does not reach the command.
func TestCloseOthers(t *testing.T) {
	leak, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	high, err := unix.FcntlInt(uintptr(leak), unix.F_DUPFD, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(high)
	const list = `for f in /proc/self/fd/*; do echo "${f##*/}"; done`
	p := program(func(p *Program, b Block) {
		out := p.AddFile("output")
		b.CloseOthers(0, high)
		b.Dup3(out, 1)
		shell(b, list)
	})
	got, _ := output(t, p, Options{})
	// The shell has one more, for its look at the folder, in some shells.
	fields := strings.Fields(got)
	if len(fields) > 4 || fields[0] != "0" || fields[1] != "1" || !strings.Contains(got, fmt.Sprintf("\n%d\n", high)) {
		t.Errorf("descriptors %q, want 0, 1 and %d", fields, high)
	}
	if strings.Contains(got, fmt.Sprintf("\n%d\n", leak)) {
		t.Errorf("descriptors %q: %d leaked", fields, leak)
	}
}

// The descriptors of the command may lie on the numbers of one another.
func TestInstall(t *testing.T) {
	var ends [4]*os.File
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
		defer ends[i+1].Close()
	}
	p := program(func(p *Program, b Block) {
		one, two, last := p.AddFile("one"), p.AddFile("two"), p.AddFile("last")
		b.CloseOthers()
		// In the child the files come to lie on 1 and 0, the wrong way round.
		b.Dup3(one, 1)
		b.Dup3(two, 0)
		moved := b.Install([]Arg{FD(1), FD(0)}, last)
		b.Write(moved[0], "x")
		b.CloexecFrom(2)
		execve(b, "/bin/sh", "sh", "-c", "echo to one >&0; echo to two >&1")
	})
	sink, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if code := exitCode(t, p, Options{Files: []int{int(ends[1].Fd()), int(ends[3].Fd()), int(sink.Fd())}}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for i, want := range []string{"to one\n", "to two\n"} {
		buf := make([]byte, 20)
		if n, _ := ends[2*i].Read(buf); string(buf[:n]) != want {
			t.Errorf("file %d got %q, want %q", i, buf[:n], want)
		}
	}
}

// peers, mistake 6: what was checked is what is mounted.
func TestSameFile(t *testing.T) {
	needKernel(t)
	dir := t.TempDir()
	file, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := program(func(p *Program, b Block) {
		b.SameFile(b.Openat2(Cwd(), dir, OpenPath, ResolveNoSymlinks), p.AddFile("checked"))
		b.Exit(3)
	})
	o := Options{Files: []int{int(file.Fd())}}
	if got := exitCode(t, p, o); got != 3 {
		t.Errorf("exit code %d", got)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir + "-away")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := failure(t, p, o); err.Index != 1 || err.Errno != 0 || !strings.Contains(err.Error(), "another file has taken the place") {
		t.Errorf("another folder: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if err := failure(t, p, o); err.Index != 0 || !isErrno(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
}

func TestLimitsAndNames(t *testing.T) {
	p := program(func(p *Program, b Block) {
		b.Dup3(p.AddFile("output"), 1)
		b.Prlimit(unix.RLIMIT_NOFILE, "RLIMIT_NOFILE", 77, 88)
		b.Chdir("/usr")
		b.Umask(0o27)
		b.Setsid()
		shell(b, `ulimit -Sn; ulimit -Hn; pwd; umask; read -r a b c d e f rest </proc/self/stat; [ "$f" = "$$" ] && echo leader`)
	})
	got, _ := output(t, p, Options{})
	if want := "77 88 /usr 0027 leader"; strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A context ends a program that does not end.
func TestCancel(t *testing.T) {
	needKernel(t)
	p := program(func(_ *Program, b Block) { nanosleep(b, uint64(time.Hour)); b.Exit(0) })
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := Run(ctx, p, Options{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the deadline", err)
		}
	}
	noChildren(t)
}
