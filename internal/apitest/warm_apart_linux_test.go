package apitest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N10: one command finds nothing of another one: no process, no file in the
// temporary folders, no message queue.
func TestWarmApart(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := openWarm(t, dir, cloche.WithWarm())
	first := startShell(t, s, "touch /tmp/a /var/tmp/a /dev/shm/a; echo up; sleep 60")
	r := capture(t, s, "find /tmp /var/tmp /dev/shm -name a; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 6[0]'; ls /proc/1/cmdline")
	if string(r.Stdout) != "/proc/1/cmdline\n" {
		t.Errorf("the second command found %q", r.Stdout)
	}
	if r := capture(t, s, "touch /dev/a"); r.Success() {
		t.Error("a command can leave a file in /dev")
	}
	if r := capture(t, s, "trap '' TERM; kill -TERM -1"); r.Signal != "" {
		t.Error(brief(r))
	}
	if err := first.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the first command is gone: %v", err)
	}
}

// startShell starts a script and waits until it has said "up", or the given line.
func startShell(t *testing.T, s *cloche.Session, script string, line ...string) *cloche.Cmd {
	t.Helper()
	c := s.Command(t.Context(), "sh", "-c", script)
	awaitLine(t, c, append(line, "up\n")[0])
	return c
}

func awaitLine(t *testing.T, c *cloche.Cmd, line string) {
	t.Helper()
	if line == "" {
		startBeside(t, c)
		return
	}
	if got := firstLine(t, c); got != strings.TrimSuffix(line, "\n") {
		t.Fatalf("the command said %q, want %q", got, line)
	}
}

// firstLine starts a command that runs on until the end of the test, and returns
// the first line that it writes.
func firstLine(t *testing.T, c *cloche.Cmd) string {
	t.Helper()
	r := startBeside(t, c)
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("the command said %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return strings.TrimSuffix(line, "\n")
}

// startBeside starts a command that runs on until the end of the test.
func startBeside(t *testing.T, c *cloche.Cmd) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		_ = c.Signal(syscall.SIGKILL)
		_ = c.Wait()
	})
	return r
}

// N10: a process that is being made shares its memory with the supervisor. None of
// the commands that can see it can get at that.
func TestWarmFastHidesSupervisor(t *testing.T) {
	testenv.Need(t, "userns")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := openWarm(t, workspace(t), cloche.WithWarmFast())
	stdin, end := io.Pipe()
	c := s.Command(t.Context(), self, helperWord, "spy")
	c.Stdin = stdin
	var out bytes.Buffer
	r, w := io.Pipe()
	c.Stdout = io.MultiWriter(&out, w)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(r)
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the spy said %q (%v)", line, err)
	}
	var seen atomic.Bool
	go func() {
		line, _ := said.ReadString('\n')
		seen.Store(line == "seen\n")
		_, _ = io.Copy(io.Discard, said)
	}()
	// On a busy machine it may be a while until the spy meets one while it runs.
	for i, end := 0, time.Now().Add(time.Minute); i < 300 || !seen.Load() && time.Now().Before(end); i++ {
		if err := s.Command(t.Context(), "true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	end.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("the spy: %v: %s", err, out.Bytes())
	}
	if !strings.Contains(out.String(), "processes seen:") || strings.Contains(out.String(), "seen: 0") {
		t.Errorf("the spy saw nothing: %s", out.Bytes())
	}
}

// N10 F12: what a command leaves behind is gone when it is over, and what another
// one has started is not.
func TestWarmLeavesNothing(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, _ string) {
		name := strconv.FormatInt(1_000_000+time.Now().UnixNano()%1_000_000, 10)
		startShell(t, s, "setsid sh -c 'sleep "+name+"1 & echo up' & sleep 60")
		if r := capture(t, s, "for i in 1 2 3; do setsid sh -c '(sleep "+name+"2 &)' & done; sleep 0.1"); !r.Success() {
			t.Fatal(brief(r))
		}
		if left := sleepers(t, name+"2"); left != 0 {
			t.Errorf("%d processes are left", left)
		}
		if kept := sleepers(t, name+"1"); kept != 1 {
			t.Errorf("%d processes of the other command, want 1", kept)
		}
	})
}

// sleepers counts the processes of the host with the argument.
func sleepers(t *testing.T, arg string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && string(line) == "sleep\x00"+arg+"\x00" {
			n++
		}
	}
	return n
}
