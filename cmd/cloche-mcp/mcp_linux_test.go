package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N11: an agent runs a command, is refused a path, asks for it, gets it through
// what cloche approve does, and repeats with success.
func TestRefusedAskedGranted(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	got := a.works("run_command", args{"argv": []string{"sh", "-c", "echo out; echo err >&2; exit 3"}})
	if got.Data["exit_code"] != 3.0 || got.Data["stdout"] != "out\n" || got.Data["stderr"] != "err\n" {
		t.Errorf("%v", got.Data)
	}
	contains(t, got.Text, "exit code 3", "out\n", "err\n")

	script := "echo new > " + a.beside + "/made && cat " + a.beside + "/made"
	got = a.shell(script)
	if got.Data["exit_code"] == 0.0 {
		t.Fatal("it was not refused")
	}
	contains(t, got.Text, "refused: ", a.beside, "request_grant {")
	ask := requestOf(t, got)
	if ask["access"] != "write" || !strings.HasPrefix(ask["path"].(string), a.beside) {
		t.Fatalf("%v", ask)
	}
	ask["reason"] = "the build writes there"
	answers := make(chan answer, 1)
	go func() { answers <- a.use("request_grant", ask) }()
	r, _ := a.decide(grant.Decision{Allow: true, Scope: grant.Session, By: "ana"})
	if r.Reason != "the build writes there" || r.Program != "test agent" || r.Path != a.beside || r.Rule == "" {
		t.Errorf("the person sees %+v", r)
	}
	if got = <-answers; got.Failed || got.Data["granted"] != true || got.Data["effective"] != true {
		t.Fatalf("%s", got.Text)
	}
	for range 2 { // for the session
		if got = a.shell(script); got.Data["stdout"] != "new\n" {
			t.Errorf("after the grant: %s", got.Text)
		}
	}
	contains(t, a.works("show_policy", nil).Text, "write "+a.beside+" (session)")
	contains(t, a.works("explain_denial", nil).Text, "refused: ", a.beside)
	contains(t, a.stderr.String(), "cloche approve")
	contains(t, a.auditLog(), `"kind":"grant"`, `"verdict":"allow"`, `"subject":"`+a.beside+`"`, "by ana")
}

// requestOf is the request that the first refusal proposes.
func requestOf(t *testing.T, got answer) args {
	t.Helper()
	list, _ := got.Data["refused"].([]any)
	if len(list) == 0 {
		t.Fatalf("no denial is recorded: %s", got.Text)
	}
	first, _ := list[0].(map[string]any)
	ask, ok := first["request_grant"].(map[string]any)
	if !ok {
		t.Fatalf("it proposes nothing: %v", first)
	}
	return ask
}

// Arguments that are no use are refused by the tool, and the server goes on.
func TestHostileArguments(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	for _, path := range []string{"", "a\x00b", strings.Repeat("x/", 4000), strings.Repeat("x", 5000), "../home/.ssh/id_test", "/proc/self/environ", "/proc/1/root/etc/passwd", "/dev/stdin", "/dev/fd/0"} {
		a.fails("read_file", args{"path": path})
		a.fails("write_file", args{"path": path, "content": "x"})
		a.fails("list_directory", args{"path": path + "\x00"})
	}
	a.fails("run_command", args{}, "argv")
	a.fails("run_command", args{"argv": []string{"true"}, "shell": "true"}, "both")
	a.fails("run_command", args{"argv": []string{"echo", "a\x00b"}}, "NUL")
	a.fails("run_command", args{"argv": []string{"true"}, "env": args{"A=B": "c"}}, "env")
	a.fails("run_command", args{"argv": []string{"true"}, "timeout_seconds": -1}, "negative")
	a.fails("run_command", args{"argv": []string{"no-such-program"}}, "no-such-program")
	a.fails("run_command", args{"argv": "true"})
	a.fails("run_command", args{"argv": []string{"true"}, "unknown": 1})
	a.fails("read_file", args{"path": "hello.txt", "start_line": -1}, "negative")
	a.fails("write_file", args{"path": "big", "content": strings.Repeat("x", 9<<20)}, "larger")
	a.fails("request_grant", args{"path": "/", "access": "write"})
	a.fails("request_grant", args{"path": "/etc", "access": "write", "reason": " "}, "reason")
	a.fails("request_grant", args{"path": "/etc", "access": "own", "reason": "x"}, "access")
	a.fails("request_grant", args{"path": "/etc", "access": "write", "reason": strings.Repeat("x", 2000)}, "reason")
	a.fails("request_grant", args{"host": "a b", "access": "connect", "reason": "x"}, "host")
	a.fails("check_access", args{"action": "own", "target": "x"}, "action")
	if got := a.works("read_file", args{"path": "hello.txt", "start_line": 1 << 40}); !strings.Contains(got.Text, "no line") {
		t.Errorf("%s", got.Text)
	}
	got := a.works("run_command", args{"argv": []string{"sh", "-c", "cat; printf $V"}, "stdin": "in ", "env": args{"V": "set"}, "cwd": "sub", "timeout_seconds": 1e300})
	if got.Data["stdout"] != "in set" {
		t.Errorf("%s", got.Text)
	}
}

// Output is bounded, told while it is made, and text in any case.
func TestOutput(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	got := a.works("run_command", args{"shell": "yes | head -c 3000000; printf '\\377end'", "max_output_bytes": 1000})
	if text := got.Data["stdout"].(string); len(text) > 1010 || !strings.HasSuffix(text, "\uFFFDend") || got.Data["stdout_bytes"] != 3000004.0 {
		t.Errorf("%d bytes of %v", len(text), got.Data["stdout_bytes"])
	}
	done := make(chan answer, 1)
	go func() {
		done <- a.use("run_command", args{"shell": "echo early; until [ -e go ]; do sleep 0.05; done; echo late"})
	}()
	for !strings.Contains(a.heardText(), "early") {
		select {
		case <-a.progressed:
		case got := <-done:
			t.Fatalf("it ended: %s", got.Text)
		}
	}
	a.put(a.ws+"/go", "")
	if got := <-done; got.Data["stdout"] != "early\nlate\n" {
		t.Errorf("%s", got.Text)
	}
}

// A call that is canceled ends its processes; so does one that is out of time.
func TestCancel(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	mark := marked(t)
	script := "trap '' TERM; (setsid sleep " + mark + " &); echo ready; sleep " + mark
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan answer, 1)
	go func() { done <- a.useIn(ctx, "run_command", args{"shell": script}) }()
	for !strings.Contains(a.heardText(), "ready") {
		<-a.progressed
	}
	cancel()
	<-done
	gone(t, mark)
	got := a.works("run_command", args{"shell": script, "timeout_seconds": 0.5})
	if got.Data["timed_out"] != true {
		t.Errorf("%s", got.Text)
	}
	contains(t, got.Text, "ended for its time", "ready")
	gone(t, mark)

	// A request that is canceled is withdrawn.
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		done <- a.useIn(ctx, "request_grant", args{"path": a.beside, "access": "write", "reason": "x"})
	}()
	a.waiting()
	cancel()
	<-done
	testenv.Eventually(t, "the request is withdrawn", func() bool { return len(a.desk().Requests) == 0 })
}

// Calls run side by side, and a command that waits keeps nobody from others.
func TestConcurrentCalls(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	slow := make(chan answer, 1)
	go func() { slow <- a.use("run_command", args{"shell": "until [ -e done ]; do sleep 0.05; done"}) }()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			name := fmt.Sprintf("f%d", i)
			if got := a.use("write_file", args{"path": name, "content": name}); got.Failed {
				t.Errorf("%s", got.Text)
			}
			if got := a.use("run_command", args{"argv": []string{"cat", name}}); got.Data["stdout"] != name {
				t.Errorf("%s: %s", name, got.Text)
			}
		})
	}
	all.Wait()
	a.works("write_file", args{"path": "done", "content": ""})
	if got := <-slow; got.Data["exit_code"] != 0.0 {
		t.Errorf("%s", got.Text)
	}
}

// F12: a client that goes, a server that is ended, and one that is killed leave
// no process, no desk and no file.
func TestNothingIsLeft(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, end := range map[string]func(*agent) error{
		"client goes": func(a *agent) error { return a.leave() },
		"SIGTERM":     func(a *agent) error { return a.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGKILL":     func(a *agent) error { return a.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			mark := marked(t)
			go a.use("request_grant", args{"path": a.beside, "access": "write", "reason": "x"})
			go a.use("run_command", args{"shell": "trap '' TERM HUP INT; (setsid sleep " + mark + " &); echo ready; sleep " + mark})
			a.waiting()
			for !strings.Contains(a.heardText(), "ready") {
				<-a.progressed
			}
			must(t, end(a))
			gone(t, mark)
			err := <-a.ended
			if a.ended <- err; (err != nil) == (name != "SIGKILL") {
				t.Errorf("the server ended: %v: %s", err, a.stderr)
			}
			if a.desk() != nil {
				t.Error("the desk is still there")
			}
			if left, err := os.ReadDir(a.base + "/tmp"); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// marked is an argument that no other process has.
func marked(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%d.%d", 3000+os.Getpid()%1000, time.Now().UnixNano())
}

// gone waits until no process has the mark in its arguments.
func gone(t *testing.T, mark string) {
	t.Helper()
	var left []string
	if !testenv.Becomes(func() bool {
		left = nil
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), mark) {
				left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		return left == nil
	}) {
		t.Errorf("processes are left: %q", left)
	}
}

// N11: cloche mcp finds the server beside itself, not in the workspace.
func TestClocheMCP(t *testing.T) {
	testenv.Need(t, "go", "userns")
	bin := t.TempDir()
	for _, name := range []string{"cloche", "cloche-mcp"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", bin+"/"+name, "../"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	a := &agent{t: t, base: t.TempDir(), stderr: &syncBuffer{}, progressed: make(chan struct{}, 1)}
	a.ws, a.home = a.base+"/ws", a.base+"/home"
	must(t, os.Mkdir(a.ws, 0o755))
	must(t, os.Mkdir(a.home, 0o755))
	must(t, os.Mkdir(a.base+"/tmp", 0o755))
	a.connect(bin+"/cloche", "mcp", "--workspace", a.ws)
	if got := a.shell("pwd"); got.Data["stdout"] != a.ws+"\n" {
		t.Errorf("%s", got.Text)
	}
	tools, err := a.ListTools(t.Context(), nil)
	must(t, err)
	if len(tools.Tools) != 9 {
		t.Errorf("%d tools", len(tools.Tools))
	}

	// N11: and what it asks for is decided by cloche approve.
	answers := make(chan answer, 1)
	go func() {
		answers <- a.use("request_grant", args{"path": a.home, "access": "write", "reason": "it is a test"})
	}()
	_, r := a.waiting()
	approve := exec.Command(bin+"/cloche", "approve", "yes", r.ID, "--scope", "session")
	approve.Env = a.cmd.Env
	if out, err := approve.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := <-answers; got.Data["effective"] != true || got.Data["scope"] != "session" {
		t.Errorf("%s", got.Text)
	}
	if got := a.shell("echo x > " + a.home + "/x"); got.Data["exit_code"] != 0.0 {
		t.Errorf("%s", got.Text)
	}

	must(t, os.Rename(bin+"/cloche-mcp", a.ws+"/cloche-mcp"))
	for path, want := range map[string]string{a.ws: "can be changed by confined commands", ".": "neither beside cloche nor in PATH", "": "neither beside cloche nor in PATH"} {
		cmd := exec.Command(bin+"/cloche", "mcp", "--workspace", a.ws)
		cmd.Dir, cmd.Env = a.ws, []string{"HOME=" + a.home, "PATH=" + path}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("PATH=%s: it was started", path)
		}
		contains(t, string(out), want, "go install")
	}
}

// BenchmarkCalls measures what calls cost that do next to nothing.
func BenchmarkCalls(b *testing.B) {
	for name, use := range map[string]func(a *agent) answer{
		"run":  func(a *agent) answer { return a.use("run_command", args{"argv": []string{"true"}}) },
		"read": func(a *agent) answer { return a.use("read_file", args{"path": "hello.txt"}) },
		"edit": func(a *agent) answer { return a.use("write_file", args{"path": "hello.txt", "content": "x"}) },
	} {
		b.Run(name, func(b *testing.B) {
			a := newAgent(b)
			for b.Loop() {
				if got := use(a); got.Failed {
					b.Fatal(got.Text)
				}
			}
		})
	}
}
