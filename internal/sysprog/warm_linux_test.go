//go:build amd64 || arm64

package sysprog

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// N10: one image serves runs that differ in arguments, texts and environment, at
// the same time too.
func TestRunsDifferInTexts(t *testing.T) {
	needKernel(t)
	im, err := Load(program(func(p *Program, b Block) {
		b.Install([]Arg{p.AddFile("in"), p.AddFile("out"), p.AddFile("err")})
		b.Call("chdir", p.AddText("folder"))
		resetSignals(b)
		b.ExecveArgv(p.AddText("program"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dir, word := t.TempDir(), strings.Repeat("x", i*7)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fd := int(w.Fd())
			proc, err := im.Run(context.Background(), Options{
				Files: []int{fd, fd, fd}, Texts: []string{dir, "/bin/sh"}, Env: []string{"WORD=" + word},
				Argv: []string{"sh", "-c", `echo "$(pwd) $1 $WORD"; exit 3`, "sh", fmt.Sprint(i)},
			})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4096)
			n, _ := r.Read(got)
			if want := fmt.Sprintf("%s %d %s\n", dir, i, word); string(got[:n]) != want {
				t.Errorf("the program said %q, want %q", got[:n], want)
			}
			if code := wait(t, proc); code != 3 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// Texts that do not fit the program are refused before anything runs.
func TestTextsAreChecked(t *testing.T) {
	p := program(func(p *Program, b Block) { b.ExecveArgv(p.AddText("program")) })
	for name, o := range map[string]Options{
		"too few":      {Argv: []string{"x"}},
		"too many":     {Texts: []string{"/a", "/b"}},
		"NUL in text":  {Texts: []string{"/a\x00b"}},
		"NUL in words": {Texts: []string{"/a"}, Argv: []string{"a\x00b"}},
	} {
		if _, err := Run(context.Background(), p, o); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	if err := program(func(_ *Program, b Block) { b.ReportInode("/"); b.ReportInode("/"); b.Exit(0) }).Validate(); err == nil {
		t.Error("two outputs are valid")
	}
}

// N10: what the program hands back is of the process that it became.
func TestReportInode(t *testing.T) {
	proc := start(t, program(func(_ *Program, b Block) { b.ReportInode("/proc/self/ns/uts"); b.Exit(0) }), Options{})
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/uts", &own); err != nil {
		t.Fatal(err)
	}
	if proc.Inode() != own.Ino {
		t.Errorf("inode %d, want %d", proc.Inode(), own.Ino)
	}
	wait(t, proc)
	if proc := start(t, program(func(_ *Program, b Block) { b.Exit(0) }), Options{}); proc.Inode() != 0 || wait(t, proc) != 0 {
		t.Error("a program that reports nothing has an inode")
	}
}

// The process that has forked is reaped with the one that it forked.
func TestForkerIsReaped(t *testing.T) {
	proc := start(t, program(func(_ *Program, b Block) {
		b.Fork(0)
		b.Sigmask(0)
		execve(b, "/bin/true", "true")
	}), Options{})
	forker := proc.forker.Pid
	if code := wait(t, proc); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := waitid(unix.P_PID, forker, unix.WEXITED|unix.WNOHANG); err != syscall.ECHILD {
		t.Errorf("the process that forked is left: %v", err)
	}
}
