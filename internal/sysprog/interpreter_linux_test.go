//go:build amd64 || arm64

package sysprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// interpret runs a program without what an emulator lacks, a pidfd, and returns
// the exit code.
func interpret(t *testing.T, p *Program, files ...int) int {
	t.Helper()
	im, err := Load(p)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{image: im, options: Options{Files: files, Env: []string{"CODE=77"}}}
	r.load()
	defer r.pin.Unpin()
	r.control.flags &^= clonePidFD
	launch(r.control)
	if r.control.pid <= 0 {
		t.Fatalf("clone returned %d", r.control.pid)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(r.control.pid), &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return status.ExitStatus()
}

// What the assembly does with a record, seen by the exit code alone: 125 is its
// own, for a step that failed.
func TestInterpreter(t *testing.T) {
	const failed = 125
	dir := t.TempDir()
	one, err := os.Create(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for _, tt := range []struct {
		name  string
		want  int
		build func(p *Program, b Block)
	}{
		{"exit", 41, func(_ *Program, b Block) { b.Exit(41) }},
		{"exec", 77, func(_ *Program, b Block) { resetSignals(b); shell(b, "exit $CODE") }},
		{"error", failed, func(_ *Program, b Block) { b.Chdir("/no/such"); b.Exit(1) }},
		{"ignored first", 2, func(_ *Program, b Block) { b.Ignoring(ENOENT, EPERM).Chdir("/no/such"); b.Exit(2) }},
		{"ignored last", 3, func(_ *Program, b Block) { b.Ignoring(EPERM, EEXIST, ENOENT).Chdir("/no/such"); b.Exit(3) }},
		{"not ignored", failed, func(_ *Program, b Block) { b.Ignoring(EPERM, EEXIST).Chdir("/no/such"); b.Exit(4) }},
		{"wanted", 5, func(_ *Program, b Block) { b.exactly(0, "chdir", Str("/")); b.Exit(5) }},
		{"not wanted", failed, func(_ *Program, b Block) { b.exactly(1, "chdir", Str("/")); b.Exit(6) }},
		{"result", 60, func(_ *Program, b Block) { b.Call("exit_group", b.MoveAbove(FD(0), 60)) }},
		{"ignored result", 255, func(_ *Program, b Block) {
			b.Call("exit_group", b.Ignoring(ENOENT).Openat(Cwd(), "/no/such", OpenRead, 0))
		}},
		{"results in all arguments", 62, func(_ *Program, b Block) {
			number := b.MoveAbove(FD(0), 61)
			dup := b.CallResult("fcntl", number, Const(dupCloexec), number)
			b.Call("exit_group", dup)
		}},
		{"files", 9, func(p *Program, b Block) {
			f := p.AddFile("one")
			b.CloseOthers()
			b.Write(f, "text")
			b.Exit(9)
		}},
		{"flags of open", failed, func(p *Program, b Block) {
			p.AddFile("one")
			b.Openat(Cwd(), filepath.Join(dir, "one"), OpenDirectory, 0)
			b.Exit(10)
		}},
		{"xor same", 11, func(p *Program, b Block) {
			b.SameFile(b.Openat(Cwd(), filepath.Join(dir, "one"), OpenRead, 0), p.AddFile("one"))
			b.Exit(11)
		}},
		{"xor other", failed, func(p *Program, b Block) {
			b.SameFile(b.Openat(Cwd(), dir, OpenRead, 0), p.AddFile("one"))
			b.Exit(12)
		}},
	} {
		p := program(tt.build)
		if got := interpret(t, p, []int{int(one.Fd())}[:len(p.Files)]...); got != tt.want {
			t.Errorf("%s: exit code %d, want %d\n%s", tt.name, got, tt.want, p)
		}
	}
	if text, err := os.ReadFile(one.Name()); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// The assembly of the other architecture, as far as an emulator goes.
func TestInterpreterArm64(t *testing.T) {
	if testing.Short() || runtime.GOARCH == "arm64" {
		t.Skip("compiles the tests for another architecture")
	}
	testenv.Need(t, "go", "qemu", "qemu-aarch64")
	binary := filepath.Join(t.TempDir(), "arm64.test")
	build := exec.Command("go", "test", "-vet=off", "-trimpath", "-c", "-o", binary, ".") // as scripts/test builds for every platform
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("qemu-aarch64", binary, "-test.v", "-test.short").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
