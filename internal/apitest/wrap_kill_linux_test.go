package apitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// F12: SIGKILL of the launcher ends the whole sandbox.
func TestWrapKilled(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		mark := marker(t)
		c := wrap(t, s, dir, "setsid sleep "+mark+" & sleep "+mark+" & echo up; wait")
		out := startAndRead(t, c)
		if n := len(marked(mark)); n < 2 {
			t.Fatalf("%d processes are marked", n)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out) // ends with the last process
		_ = c.Wait()
		goneSoon(t, mark)
		runtime.KeepAlive(c) // it must not take the garbage collector
	})
}

// F12: so do a context that is canceled, and the signals by which programs end
// others, even if the command ignores them.
func TestWrapEnded(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		const script = "setsid sleep MARK & sleep MARK & echo up; wait"
		start := func(ctx context.Context) (*exec.Cmd, string) {
			mark := marker(t)
			c := exec.CommandContext(ctx, "/bin/sh", "-c", strings.ReplaceAll(script, "MARK", mark))
			c.Dir = dir
			if err := s.Wrap(c); err != nil {
				t.Fatal(err)
			}
			startAndRead(t, c)
			return c, mark
		}
		ctx, cancel := context.WithCancel(t.Context())
		c, mark := start(ctx)
		cancel()
		_ = c.Wait()
		goneSoon(t, mark)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			if signal.Ignored(sig) { // as below nohup; the launcher inherits that
				continue
			}
			c, mark := start(t.Context())
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			goneSoon(t, mark)
			runtime.KeepAlive(c)
		}
		runtime.KeepAlive(c)
	})
}

// F12: SIGKILL of the launcher at any moment of its start leaves nothing. A child
// that bwrap made and did not come to release runs nothing, and stays until the
// exec.Cmd is collected.
func TestWrapKilledAtAnyMoment(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		for i := range 40 {
			mark := marker(t)
			c := wrap(t, s, dir, "setsid sleep "+mark+" & sleep "+mark)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 300 * time.Microsecond) // the moment of the kill is what varies
			_ = c.Process.Kill()
			_ = c.Wait()
			c = nil
			testenv.Becomes(func() bool { runtime.GC(); return len(marked(mark)) == 0 })
			goneSoon(t, mark)
		}
	})
}

// F12: so does SIGKILL of the caller, also where the launcher is stopped and
// where the kill comes at any moment of the start.
func TestWrapCallerKilled(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		name, _, err := s.Backend()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			mark := marker(t)
			caller := exec.Command(os.Args[0], "-test.run=^TestWrapCaller$")
			caller.Env = append(os.Environ(), callerVariable+"="+strings.Join([]string{name, dir, mark, strconv.Itoa(i)}, ","))
			out, err := caller.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := caller.Start(); err != nil {
				t.Fatal(err)
			}
			readLine(t, out, "wrapped")
			if i == 0 {
				var launcher int
				if _, err := fmt.Fscanln(out, &launcher); err != nil {
					t.Fatal(err)
				}
				// Who was stopped by others stays so; the sandbox must not.
				t.Cleanup(func() { _ = syscall.Kill(launcher, syscall.SIGKILL) })
			} else {
				time.Sleep(time.Duration(i) * 400 * time.Microsecond) // the moment of the kill is what varies
			}
			if err := caller.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, out)
			_ = caller.Wait()
			goneSoon(t, mark)
		}
	})
}

// callerVariable makes TestWrapCaller the program that is killed: the backend,
// the workspace, the mark, and a number that is 0 if the launcher is stopped.
const callerVariable = "CLOCHE_TEST_CALLER"

// TestWrapCaller is the helper of TestWrapCallerKilled.
func TestWrapCaller(t *testing.T) {
	what := strings.Split(os.Getenv(callerVariable), ",")
	if len(what) != 4 {
		t.Skip("it is the other process of TestWrapCallerKilled")
	}
	dir, mark := what[1], what[2]
	p := policy.Workspace(dir).With(policy.WithBackend(what[0]), policy.WithRequire(policy.BestEffort))
	c := wrap(t, open(t, p, dir), dir, "sleep "+mark+" & echo up; sleep "+mark)
	fmt.Println("wrapped")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if what[3] == "0" {
		readLine(t, out, "up")
		if byLauncher(c) { // bubblewrap has the mark among its own arguments
			_ = c.Process.Signal(syscall.SIGSTOP)
		}
		fmt.Println(c.Process.Pid)
	}
	select {}
}

// marker is an argument of sleep that no other process has.
func marker(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("6%d.%d", os.Getpid(), time.Now().UnixNano())
}

// marked are the processes that have the marker among their arguments.
func marked(mark string) (pids []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		if bytes.Contains(line, []byte(mark)) {
			pids = append(pids, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return pids
}

// goneSoon waits until no process has the marker.
func goneSoon(t *testing.T, mark string) {
	t.Helper()
	if !testenv.Becomes(func() bool { return len(marked(mark)) == 0 }) {
		t.Fatalf("processes are left: %q", marked(mark))
	}
}
