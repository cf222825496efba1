package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// wrappers are the backends that wrap commands, and what each needs.
var wrappers = map[string]string{"native": "userns", "bwrap": "bwrap", "landlock": "landlock"}

// eachWrapper runs a test with a session of each backend, as the user that runs
// the test and as an ordinary one.
func eachWrapper(t *testing.T, test func(t *testing.T, s *cloche.Session, dir string)) {
	eachOf(t, []string{"native", "bwrap", "landlock"}, test)
}

// eachLauncher is eachWrapper for what cloche's own launcher does. Bubblewrap is its own: it keeps
// its standard streams and forwards no signals.
func eachLauncher(t *testing.T, test func(t *testing.T, s *cloche.Session, dir string)) {
	eachOf(t, []string{"native", "landlock"}, test)
}

func eachOf(t *testing.T, backends []string, test func(t *testing.T, s *cloche.Session, dir string)) {
	testenv.AlsoAsUser(t)
	for _, name := range backends {
		need := wrappers[name]
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, need)
			dir := workspace(t)
			p := policy.Workspace(dir).With(policy.WithBackend(name), policy.WithRequire(policy.BestEffort))
			test(t, open(t, p, dir), dir)
		})
	}
}

// wrap prepares a script and wraps it.
func wrap(t *testing.T, s *cloche.Session, dir, script string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Dir = dir
	if err := s.Wrap(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// C1: everything of a wrapped command but Path, Args and Env is kept.
func TestWrapKeepsTheRest(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var out, errs bytes.Buffer
		c := exec.Command("/bin/sh", "-c", "cat; pwd; echo third >&3; echo $LANG$CLOCHE_X >&2; touch /usr/x")
		c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in\n"), &out, &errs
		c.Dir, c.ExtraFiles = dir, []*os.File{w}
		c.Env = []string{"LANG=C", "CLOCHE_X=not passed", "PATH=/usr/bin:/bin"}
		if err := s.Wrap(c); err != nil {
			t.Fatal(err)
		}
		if c.Dir != dir || c.ExtraFiles[0] != w {
			t.Error("Dir or ExtraFiles changed")
		}
		if err := s.Wrap(c); err == nil || !strings.Contains(err.Error(), "wrapped already") {
			t.Errorf("second wrap: %v", err)
		}
		other, err := cloche.Open(t.Context(), policy.Workspace(dir))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := other.Wrap(c); err == nil || !strings.Contains(err.Error(), "wrapped already") {
			t.Errorf("second wrap, by another session: %v", err)
		}
		if err := c.Run(); err == nil {
			t.Error("writing /usr succeeded")
		}
		w.Close()
		third := make([]byte, 10)
		n, _ := r.Read(third)
		if out.String() != "in\n"+dir+"\n" || string(third[:n]) != "third\n" || !strings.HasPrefix(errs.String(), "C\n") {
			t.Errorf("out %q, third %q, err %q", &out, third[:n], &errs)
		}
	})
}

// C1 F2: nothing but the kernel is needed.
func TestWrapWithoutBwrap(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	dir := workspace(t)
	s := open(t, policy.Workspace(dir), dir, cloche.WithRegistry(withoutBwrap(t)))
	c := wrap(t, s, dir, "echo x >made && ! touch /usr/x")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if c.Args[0] != "cloche:native" {
		t.Errorf("wrapped by %s", c.Args[0])
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
}

// withoutBwrap is the registry of a machine that has no bubblewrap.
func withoutBwrap(t *testing.T) *backend.Registry {
	t.Helper()
	r, err := cloche.DefaultRegistry(policy.Backend{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Unregister("bwrap") {
		t.Fatal("there is no backend bwrap")
	}
	return r
}

// C1: the launcher ends as the command does.
func TestWrapEndsLikeTheCommand(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15, "kill -SEGV $$": 128 + 11} {
			c := wrap(t, s, dir, script)
			err := c.Run()
			state, _ := c.ProcessState.Sys().(syscall.WaitStatus)
			got := state.ExitStatus()
			if state.Signaled() {
				got = 128 + int(state.Signal())
			}
			if got != want || (err == nil) != (want == 0) {
				t.Errorf("%s: %d (%v), want %d", script, got, err, want)
			}
			if byLauncher(c) && want > 128 && want != 255 && !state.Signaled() {
				t.Errorf("%s: exit code %d and no signal", script, state.ExitStatus())
			}
			if state.CoreDump() {
				t.Errorf("%s: the launcher dumped core", script)
			}
		}
	})
}

// byLauncher reports whether cloche's own launcher runs a command.
func byLauncher(c *exec.Cmd) bool { return !strings.HasSuffix(c.Args[0], ":bwrap") }

// C1: pipes end when the command lets go of them, not when it ends.
func TestWrapHoldsNoPipes(t *testing.T) {
	eachLauncher(t, func(t *testing.T, s *cloche.Session, dir string) {
		c := exec.Command("/bin/sh", "-c", "exec >&- 3>&-; cat <&0; exit 3")
		c.Dir = dir
		stdin, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c.ExtraFiles = []*os.File{w}
		if err := s.Wrap(c); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		for _, f := range []io.Reader{stdout, r} {
			if text, err := io.ReadAll(f); err != nil || len(text) > 0 {
				t.Errorf("read %q, %v", text, err)
			}
		}
		stdin.Close()
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 && exit.ExitCode() != 3 {
			t.Errorf("after the end of standard input: %v", err)
		}
	})
}

// C1 L7: a wrapped command can be started whenever the caller likes, with
// variables that it adds; one whose session is over does not run.
func TestWrapStartedLater(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		early, late := wrap(t, s, dir, "echo $ADDED"), wrap(t, s, dir, "echo ran")
		for range 3 {
			runtime.GC() // what a wrapped command needs is held by it
		}
		if byLauncher(early) {
			early.Env = append(early.Env, "ADDED=x")
		}
		if out, err := early.CombinedOutput(); err != nil || byLauncher(early) && string(out) != "x\n" {
			t.Errorf("%q, %v", out, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if out, err := late.CombinedOutput(); err == nil || strings.Contains(string(out), "ran") {
			t.Errorf("after the end of the session: %q, %v", out, err)
		}
	})
}

// C1: closing the session ends what it wrapped.
func TestCloseEndsWrapped(t *testing.T) {
	eachWrapper(t, func(t *testing.T, s *cloche.Session, dir string) {
		c := wrap(t, s, dir, "echo up; sleep 60")
		startAndRead(t, c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil {
			t.Error("the command ended by itself")
		}
		if err := s.Command(t.Context(), "true").Run(); !errors.Is(err, cloche.ErrClosed) {
			t.Errorf("a closed session runs: %v", err)
		}
	})
}

// startAndRead starts a command and waits for its first line.
func startAndRead(t *testing.T, c *exec.Cmd) io.Reader {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	readLine(t, out, "up")
	return out
}

func readLine(t *testing.T, r io.Reader, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	if _, err := io.ReadFull(r, line); err != nil || string(line) != want+"\n" {
		t.Fatalf("read %q, %v, want %q", line, err, want)
	}
}

// C1: signals reach the command.
func TestWrapForwardsSignals(t *testing.T) {
	eachLauncher(t, func(t *testing.T, s *cloche.Session, dir string) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
			c := wrap(t, s, dir, fmt.Sprintf("trap 'exit 9' %d; echo up; while :; do sleep 0.01; done", sig))
			startAndRead(t, c)
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if _ = c.Wait(); c.ProcessState.ExitCode() != 9 {
				t.Errorf("%v: %v", sig, c.ProcessState)
			}
		}
		c := wrap(t, s, dir, "echo up; sleep 60")
		startAndRead(t, c)
		_ = c.Process.Signal(syscall.SIGTERM)
		if _ = c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("a signal that nobody handles: %v", c.ProcessState)
		}
	})
}

// C1: what a terminal sends to its foreground reaches the command: Ctrl-Z stops
// it, SIGCONT lets it go on, Ctrl-C interrupts it.
func TestWrapOnTerminal(t *testing.T) {
	eachLauncher(t, func(t *testing.T, s *cloche.Session, dir string) {
		mark := marker(t)
		terminal, theirs, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		c := exec.Command("/bin/sh", "-c", "echo up; sleep "+mark)
		c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, theirs, theirs, theirs
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := s.Wrap(c); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		line := make([]byte, 4)
		if _, err := io.ReadFull(terminal, line); err != nil || string(line) != "up\r\n" {
			t.Fatalf("read %q, %v", line, err)
		}
		stateSoon(t, mark, "S")
		// A new session is an orphaned group, and the kernel stops none of those by
		// the keyboard: the signal itself is what is forwarded.
		_ = c.Process.Signal(syscall.SIGTSTP)
		stateSoon(t, mark, "T")
		_ = c.Process.Signal(syscall.SIGCONT)
		stateSoon(t, mark, "S")
		if _, err := terminal.Write([]byte{'C' & 31}); err != nil {
			t.Fatal(err)
		}
		if _ = c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
			t.Errorf("Ctrl-C: %v", c.ProcessState)
		}
	})
}

// stateSoon waits until the marked sleep is in a state, as ps shows it.
func stateSoon(t *testing.T, mark, want string) {
	t.Helper()
	if !testenv.Becomes(func() bool { return sleepState(mark) == want }) {
		t.Fatalf("the command is in state %q, want %q", sleepState(mark), want)
	}
}

func sleepState(mark string) string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if line, _ := os.ReadFile(d + "/cmdline"); string(line) != "sleep\x00"+mark+"\x00" {
			continue
		}
		stat, _ := os.ReadFile(d + "/stat")
		if _, rest, ok := bytes.Cut(stat, []byte(") ")); ok {
			return string(rest[:1])
		}
	}
	return ""
}

// C1: what would take the launcher elsewhere is refused.
func TestWrapRefusesAttributes(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir)
	for name, attr := range map[string]*syscall.SysProcAttr{
		"Chroot":         {Chroot: dir},
		"Credential":     {Credential: &syscall.Credential{Uid: 1}},
		"user namespace": {Cloneflags: syscall.CLONE_NEWUSER},
	} {
		c := exec.Command("/bin/true")
		c.Dir, c.SysProcAttr = dir, attr
		if err := s.Wrap(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if c.Path != "/bin/true" {
			t.Errorf("%s: Path is %s after an error", name, c.Path)
		}
	}
	c := exec.Command("/bin/true")
	c.Dir, c.ExtraFiles = dir, []*os.File{nil}
	if err := s.Wrap(c); err == nil || !strings.Contains(err.Error(), "ExtraFiles[0]") {
		t.Errorf("a nil file: %v", err)
	}
}

// A context that ends kills the command.
func TestWrapCanceled(t *testing.T) {
	testenv.Need(t, "userns")
	dir, mark := workspace(t), marker(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir)
	ctx, cancel := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, "/bin/sh", "-c", "echo up; sleep "+mark)
	c.Dir = dir
	if err := s.Wrap(c); err != nil {
		t.Fatal(err)
	}
	startAndRead(t, c)
	cancel()
	if err := c.Wait(); err == nil {
		t.Error("it ended by itself")
	}
	goneSoon(t, mark)
}

// C1: a socket that goes away between the plan and the start, as in a /tmp that is
// shared with busy programs, is no reason to refuse the command.
func TestWrapWithVanishedSocket(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	for _, name := range []string{"s", "d/e/s"} {
		dir := workspace(t)
		first := filepath.Join(dir, strings.Split(name, "/")[0])
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		c := wrap(t, open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir), dir, "ls; echo ran")
		if err := errors.Join(ln.Close(), os.RemoveAll(first)); err != nil {
			t.Fatal(err)
		}
		if out, err := c.CombinedOutput(); err != nil || string(out) != "ran\n" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// C1, C2: commands start while other programs make and remove sockets, and the folders
// that they are in, in a folder that the command may write.
func TestStartWhileSocketsComeAndGo(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, need := range wrappers {
		if name == "bwrap" {
			continue // bubblewrap itself looks for every path, and fails where one is gone
		}
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, need)
			dir := workspace(t)
			comeAndGo(t, dir)
			p := policy.Workspace(dir).With(policy.WithBackend(name), policy.WithRequire(policy.BestEffort))
			s := open(t, p, dir)
			for range 30 {
				for _, mode := range [][]cloche.Option{nil, {cloche.WithWarm()}, {cloche.WithWarmFast()}} {
					s := open(t, p, dir, mode...)
					if r := capture(t, s, "echo ran"); string(r.Stdout) != "ran\n" {
						t.Fatalf("exit code %d: %s", r.ExitCode, r.Stderr)
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if out, err := wrap(t, s, dir, "echo ran").CombinedOutput(); err != nil || string(out) != "ran\n" {
					t.Fatalf("wrapped: %v: %s", err, out)
				}
			}
		})
	}
}

// comeAndGo makes and removes sockets in a folder for as long as the test runs.
func comeAndGo(t *testing.T, dir string) {
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		own := filepath.Join(dir, fmt.Sprint(i))
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := makeAndRemoveSockets(own); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	t.Cleanup(func() { close(done); all.Wait() })
}

func makeAndRemoveSockets(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"s", "deep/s"} {
		ln, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer ln.Close()
	}
	return os.RemoveAll(dir)
}

// C1: nor is one that goes away between the plan and the look at what it is about.
func TestWrapWhileSocketVanishes(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, need := range wrappers {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, need)
			dir := workspace(t)
			ln, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			sink := sinkFunc(func(audit.Event) error { ln.Close(); return nil })
			p := policy.Workspace(dir).With(policy.WithBackend(name), policy.WithRequire(policy.BestEffort))
			c := wrap(t, open(t, p, dir, cloche.WithAudit(sink)), dir, "ls; echo ran")
			if out, err := c.CombinedOutput(); err != nil || string(out) != "ran\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

type sinkFunc func(audit.Event) error

func (f sinkFunc) Record(e audit.Event) error { return f(e) }

// N9: a wrapped command of root does not change the host's device nodes, or is refused by a
// strict policy.
func TestWrapKeepsDeviceNodes(t *testing.T) {
	testenv.Need(t, "root")
	const node = "/dev/full"
	before, err := os.Stat(node)
	if err != nil {
		t.Fatal(err)
	}
	for name, need := range wrappers {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, need)
			dir := workspace(t)
			s := open(t, policy.Workspace(dir).With(policy.WithBackend(name), policy.WithRequire(policy.Strict)), dir)
			c := exec.Command("/bin/sh", "-c", "chmod 640 "+node)
			c.Dir = dir
			err := s.Wrap(c)
			var gaps *cloche.GapError
			if errors.As(err, &gaps) {
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.CombinedOutput()
			after, _ := os.Stat(node)
			if err == nil || after.Mode() != before.Mode() {
				_ = os.Chmod(node, before.Mode().Perm())
				t.Errorf("%s has the mode %v, and had %v: %v %s", node, after.Mode(), before.Mode(), err, out)
			}
		})
	}
}
