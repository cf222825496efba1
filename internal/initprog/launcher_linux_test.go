//go:build amd64 || arm64

package initprog

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// launch prepares the launcher with a program that ends in the init, or as the
// test wants it. The program's files are the standard streams and the init's
// status, which the launcher makes.
func launch(t *testing.T, arch string, build func(b sysprog.Block, status sysprog.Arg)) *exec.Cmd {
	t.Helper()
	const image, free = 3, 4
	p := &sysprog.Program{}
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		p.AddFile(name)
	}
	status := p.AddFile("status")
	build(p.For(policy.Origin{Source: "policy.yaml", Line: 12}, "test"), status)
	e, err := sysprog.ExportCommand(p, sysprog.ExportOptions{
		Arch: arch, Files: []int{0, 1, 2, free + StatusEnd}, Explain: "cloche: ",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &exec.Cmd{
		Args:       LaunchConfig{ImageFD: image, FreeFD: free, Path: "/the/command"}.Argv("launch"),
		Env:        []string{"WORD=variable"},
		ExtraFiles: []*os.File{contentFile(t, e)},
	}
}

// run runs the launcher of this machine.
func runLauncher(t *testing.T, c *exec.Cmd) (string, syscall.WaitStatus) {
	t.Helper()
	elf, err := Launcher()
	if err != nil {
		t.Fatal(err)
	}
	c.Path = writeProgram(t, elf)
	return output(t, c)
}

func writeProgram(t *testing.T, elf []byte) string {
	t.Helper()
	path := t.TempDir() + "/program"
	if err := os.WriteFile(path, elf, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func output(t *testing.T, c *exec.Cmd) (string, syscall.WaitStatus) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	return out.String(), c.ProcessState.Sys().(syscall.WaitStatus)
}

// report writes a record as the init would.
func report(b sysprog.Block, status sysprog.Arg, kind RecordType, value byte) {
	b.Write(status, string([]byte{byte(kind), 0, 0, 0, value, value >> 7, 0, 0}))
}

// C1: what the launcher makes of what the program and the init do.
func TestLauncher(t *testing.T) {
	type outcome struct {
		text string
		code int // or 128 and the signal
	}
	for name, tt := range map[string]struct {
		build func(b sysprog.Block, status sysprog.Arg)
		want  outcome
	}{
		"exit": {func(b sysprog.Block, status sysprog.Arg) {
			report(b, status, Started, 0)
			b.Write(status, string([]byte{byte(Exited), 0, 0, 0, 0, 9, 0, 0}))
			b.Exit(1)
		}, outcome{"", 9}},
		"signal": {func(b sysprog.Block, status sysprog.Arg) {
			report(b, status, Exited, 15)
			b.Exit(1)
		}, outcome{"", 128 + 15}},
		"exec": {func(b sysprog.Block, _ sysprog.Arg) {
			b.Sigmask(0) // a launcher has no handlers
			b.Call("execve", sysprog.Str("/bin/sh"), sysprog.Arg{Kind: sysprog.KindVector, List: []string{"sh", "-c", "echo $WORD; exit 125"}}, sysprog.Arg{Kind: sysprog.KindEnviron})
		}, outcome{"variable\ncloche: the sandbox was ended before the command started", 125}},
		"step": {func(b sysprog.Block, _ sysprog.Arg) {
			b.Ignoring(sysprog.ENOENT).Chdir("/no/such")
			b.Chdir("/no/such")
			b.Exit(0)
		}, outcome{"cloche: step 1, test: chdir: ENOENT (rule policy.yaml:12); something has changed since the command was prepared: prepare it again", 125}},
		"result": {func(b sysprog.Block, _ sysprog.Arg) {
			b.Read(b.Openat(sysprog.Cwd(), os.DevNull, sysprog.OpenRead, 0), 1)
			b.Exit(0)
		}, outcome{"cloche: step 1, test: read: returned something else than 1 (rule policy.yaml:12); something has changed since the command was prepared: prepare it again", 125}},
		"no command": {func(b sysprog.Block, status sysprog.Arg) {
			report(b, status, ExecFailed, byte(unix.ENOENT))
			b.Exit(1)
		}, outcome{"cloche: cannot execute /the/command: ENOENT", 127}},
		"no right": {func(b sysprog.Block, status sysprog.Arg) {
			report(b, status, ExecFailed, byte(unix.EACCES))
			b.Exit(1)
		}, outcome{"cloche: cannot execute /the/command: EACCES", 126}},
		"init": {func(b sysprog.Block, status sysprog.Arg) {
			b.Write(status, string([]byte{byte(SetupFailed), 0, 0, 0, byte(unix.EPERM), 0, byte(StepTerminal), 0}))
			b.Exit(1)
		}, outcome{"cloche: the init of the sandbox failed: " + StepTerminal.String() + ": EPERM", 125}},
		"killed": {func(b sysprog.Block, _ sysprog.Arg) {
			b.Call("kill", b.CallResult("getpid"), sysprog.Const(uint64(unix.SIGKILL)))
			b.Exit(0)
		}, outcome{"cloche: step 1, test: kill: ended by signal 9 (rule policy.yaml:12)", 125}},
	} {
		text, status := runLauncher(t, launch(t, runtime.GOARCH, tt.build))
		got := outcome{strings.TrimSuffix(text, "\n"), status.ExitStatus()}
		if status.Signaled() {
			got.code = 128 + int(status.Signal())
		}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// The launcher names the init's steps as this package does.
func TestLauncherKnowsSteps(t *testing.T) {
	elf, err := Launcher()
	if err != nil {
		t.Skip(err)
	}
	for s := StepArguments; s <= StepProgram; s++ {
		if !bytes.Contains(elf, append([]byte(s.String()), 0)) {
			t.Errorf("the launcher does not know step %d, %q", s, s)
		}
	}
}

// TestLauncherArm64 runs the launcher of the other architecture, as far as
// user-mode emulation goes.
func TestLauncherArm64(t *testing.T) {
	testenv.Need(t, "qemu", "qemu-aarch64")
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Fatal(err)
	}
	elf, err := os.ReadFile("launch_arm64.elf")
	if err != nil {
		t.Fatal(err)
	}
	for want, build := range map[string]func(b sysprog.Block, status sysprog.Arg){
		"step 0, test: chdir: ENOENT": func(b sysprog.Block, _ sysprog.Arg) { b.Chdir("/no/such"); b.Exit(0) },
		"cannot execute /the/command": func(b sysprog.Block, status sysprog.Arg) {
			report(b, status, ExecFailed, byte(unix.EACCES))
			b.Exit(1)
		},
	} {
		c := launch(t, "arm64", build)
		c.Path, c.Args = qemu, append([]string{qemu, writeProgram(t, elf)}, c.Args[1:]...)
		if text, _ := output(t, c); !strings.Contains(text, want) {
			t.Errorf("%q, want %q in it", text, want)
		}
	}
}
