//go:build amd64 || arm64

package sysprog

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// L5: what a program that shares the descriptors opens is the caller's, and the
// results say which it is, also where a later step fails.
func TestShareFiles(t *testing.T) {
	needKernel(t)
	var open Arg
	p := program(func(_ *Program, b Block) {
		open = b.CallResult("socket", Const(unix.AF_UNIX), Const(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), Const(0))
		b.SameFile(open, open)
		b.Exit(0)
	})
	results := make([]int64, len(p.Steps))
	if code := exitCode(t, p, Options{ShareFiles: true, Results: results}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	fd := int(results[open.Value])
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || kind != unix.AF_UNIX {
		t.Errorf("the result %d is no unix socket: %v", fd, err)
	}
	unix.Close(fd)
	if results[1] != -1 {
		t.Errorf("a macro has the result %d", results[1])
	}

	p = program(func(_ *Program, b Block) {
		open = b.CallResult("socket", Const(unix.AF_UNIX), Const(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), Const(0))
		b.Chdir("/no/such/folder")
		b.Chdir("/")
		b.Exit(0)
	})
	results = make([]int64, len(p.Steps))
	_, err := Run(context.Background(), p, Options{ShareFiles: true, Results: results})
	if !errors.Is(err, unix.ENOENT) || results[open.Value] < 0 || results[2] != -1 {
		t.Errorf("%v, with the results %v", err, results)
	}
	unix.Close(int(results[open.Value]))
}

// Without sharing nothing stays, and what would act on the caller is refused.
func TestSharingIsChecked(t *testing.T) {
	for name, build := range map[string]func(*Program, Block){
		"close_others": func(_ *Program, b Block) { b.CloseOthers(); b.Exit(0) },
		"dup3":         func(_ *Program, b Block) { b.Dup3(FD(1), 2); b.Exit(0) },
		"close_range":  func(_ *Program, b Block) { b.Call("close_range", Const(3), Const(4), Const(0)); b.Exit(0) },
		"execve":       func(_ *Program, b Block) { execve(b, "/bin/true", "true") },
		"clone3":       func(_ *Program, b Block) { b.Fork(0); b.Exit(0) },
	} {
		_, err := Run(context.Background(), program(build), Options{ShareFiles: true})
		if err == nil || !strings.Contains(err.Error(), "shares the descriptors") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := program(func(_ *Program, b Block) { b.Setsid(); b.Exit(0) })
	if _, err := Run(context.Background(), p, Options{Results: make([]int64, 1)}); err == nil {
		t.Error("there is no room for the results, and it ran")
	}
}
