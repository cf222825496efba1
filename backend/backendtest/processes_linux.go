package backendtest

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

var processCases = []testCase{
	{"processes/invisible", []string{"processes"}, hostProcessesInvisible},
	{"processes/signals", []string{"processes"}, hostProcessesUnreachable},
	{"processes/end-with-the-run", []string{"lifetime"}, childrenEndWithTheRun},
	{"processes/end-with-the-timeout", []string{"lifetime"}, childrenEndWithTheTimeout},
	{"processes/end-with-the-context", []string{"lifetime"}, childrenEndWithTheContext},
}

// victim starts a process on the host that does nothing.
func (c *check) victim() *exec.Cmd {
	cmd := exec.Command("sleep", "300")
	cmd.Args[0] = c.token + "-victim"
	c.must(cmd.Start())
	c.cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// F11: processes of the host cannot be seen.
func hostProcessesInvisible(c *check) {
	v := c.victim()
	answers := c.box().do(op{Do: "processes"}, list("/proc/"+itoa(v.Process.Pid)), read("/proc/"+itoa(os.Getpid())+"/environ"), on("readlink", "/proc/"+itoa(v.Process.Pid)+"/root"))
	for _, line := range answers[0].List {
		if strings.Contains(string(line), c.token+"-victim") {
			c.Errorf("a process of the host is visible: %q", line)
		}
	}
	if len(answers[0].List) == 0 {
		c.Errorf("the command does not even see itself in /proc (%s)", answers[0].Error)
	}
	c.refused(answers[1:]...)
}

// F11: processes of the host cannot be signalled, one by one or all at once. The signal
// that is sent to all does no harm.
func hostProcessesUnreachable(c *check) {
	v := c.victim()
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGWINCH)
	defer signal.Stop(got)
	all := op{Do: "kill", N: -1, M: int64(unix.SIGWINCH)}
	group := op{Do: "kill", N: 0, M: int64(unix.SIGWINCH)}
	answers := c.box().do(op{Do: "kill", N: int64(v.Process.Pid), M: int64(unix.SIGKILL)}, all, group,
		op{Do: "kill", N: -int64(unix.Getpgrp()), M: int64(unix.SIGWINCH)})
	c.refused(answers[0])
	if err := v.Process.Signal(syscall.Signal(0)); err != nil {
		c.Errorf("the process of the host is gone: %v", err)
	}
	select {
	case s := <-got:
		c.Errorf("the caller received %v from inside", s)
	case <-time.After(100 * time.Millisecond):
	}
}

// gone waits until no process of the case is left.
func (c *check) gone() {
	var left []string
	for end := time.Now().Add(awaitTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = c.processes(); len(left) == 0 {
			return
		}
	}
	c.Errorf("processes are left: %q", left)
}

// processes returns the processes on the host that the case started, except its victim.
func (c *check) processes() []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	c.must(err)
	var out []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), "\x00"+c.token+"\x00") && !strings.HasPrefix(f, "/proc/"+strconv.Itoa(os.Getpid())+"/") {
			out = append(out, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

// silent checks that no process writes to the file any more.
func (c *check) silent(p string) {
	before, err := os.ReadFile(p)
	if err != nil {
		c.Fatalf("the process inside never wrote: %v", err)
	}
	time.Sleep(150 * time.Millisecond)
	after, err := os.ReadFile(p)
	if err != nil || string(before) != string(after) {
		c.Errorf("somebody still writes to %s", p)
	}
}

// now fails the case if one of its processes is still there.
func (c *check) now() {
	if left := c.processes(); len(left) > 0 {
		c.Errorf("the run is over, and processes are left: %q", left)
	}
}

// F12: processes that the command left behind are gone when the run ends, without a
// delay.
func childrenEndWithTheRun(c *check) {
	beat := filepath.Join(c.ws, "beat")
	c.allowed(c.box().do(op{Do: "daemon", Path: text(beat)})...)
	c.now()
	c.silent(beat)
}

// F12 W7: the same is true when the run times out.
func childrenEndWithTheTimeout(c *check) {
	beat := filepath.Join(c.ws, "beat")
	cmd := c.box(policy.WithLimits(policy.Limits{Time: 4 * time.Second})).probe(
		op{Do: "say", Data: "partial"}, op{Do: "daemon", Path: text(beat)}, op{Do: "heartbeat", Path: text(c.ws + "/own")})
	r, err := cmd.Capture()
	if err != nil || !r.TimedOut || string(r.Stdout) != "partial" {
		c.Fatalf("the run gave %+v (%v), want a timeout and what was said before it", r, err)
	}
	c.now()
	c.silent(beat)
}

// F12: the same is true when the run is canceled.
func childrenEndWithTheContext(c *check) {
	beat := filepath.Join(c.ws, "beat")
	cmd := c.box().probe(op{Do: "daemon", Path: text(beat)}, op{Do: "heartbeat", Path: text(c.ws + "/own")})
	if err := cmd.Start(); err != nil {
		c.Fatalf("the probe did not start: %v", err)
	}
	c.must(awaitFile(c.ws + "/own"))
	c.must(cmd.Signal(syscall.SIGTERM)) // the probe ignores this signal
	c.cancel()
	var exit *cloche.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || !exit.Canceled {
		c.Errorf("Wait gave %v, want that it was canceled", err)
	}
	c.now()
	c.silent(beat)
}
