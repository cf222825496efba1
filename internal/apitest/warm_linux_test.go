package apitest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// warmModes are the two ways of being warm.
var warmModes = map[string]cloche.Option{"apart": cloche.WithWarm(), "fast": cloche.WithWarmFast()}

// eachWarm runs a test in a session of each mode that has run a command before.
func eachWarm(t *testing.T, f func(t *testing.T, s *cloche.Session, dir string), opts ...policy.Option) {
	testenv.Need(t, "userns")
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			f(t, openWarm(t, dir, mode, opts...), dir)
		})
	}
}

func openWarm(t *testing.T, dir string, mode cloche.Option, opts ...policy.Option) *cloche.Session {
	t.Helper()
	p := policy.Workspace(dir).With(policy.WithBackend("native")).With(opts...)
	s := open(t, p, dir, mode)
	if r := capture(t, s, "true"); !r.Success() {
		t.Fatalf("the first command gave %s", brief(r))
	}
	return s
}

// N10: later commands of a session are what the first one is: program,
// arguments, environment, folder, streams, status, audit.
func TestWarmCommands(t *testing.T) {
	testenv.Need(t, "userns")
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			dir, log := workspace(t), &recorder{}
			if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir, mode, cloche.WithAudit(log))
			for i := range 3 {
				c := s.Command(t.Context(), "sh", "-c", `cat; echo "$1 $VALUE"; pwd; exit 7`, "sh", fmt.Sprint(i))
				c.Dir, c.Stdin = filepath.Join(dir, "sub"), strings.NewReader("in ")
				c.SetEnv("VALUE", fmt.Sprint("v", i))
				r, err := c.Capture()
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("in %d v%d\n%s/sub\n", i, i, dir); string(r.Stdout) != want || r.ExitCode != 7 || r.Backend != "native" || !r.Confined {
					t.Errorf("run %d gave %s, want %q", i, brief(r), want)
				}
			}
			if n := len(log.kinds(audit.Start)); n != 3 {
				t.Errorf("%d starts are in the audit log, want 3", n)
			}
			var notFound *cloche.CommandError
			if err := s.Command(t.Context(), "no-such-program").Run(); !errors.As(err, &notFound) {
				t.Errorf("a program that does not exist: %v", err)
			}
			script := filepath.Join(dir, "bad")
			if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			var exec *cloche.ExecError
			if err := s.Command(t.Context(), script).Run(); !errors.As(err, &exec) || exec.ExitCode() != 127 {
				t.Errorf("a program that cannot be executed: %v", err)
			}
		})
	}
}

type recorder struct {
	mu     sync.Mutex
	events []audit.Event
}

func (r *recorder) Record(e audit.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return nil
}

func (r *recorder) kinds(k string) []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e audit.Event) bool { return e.Kind != k })
}

// N10: many commands at once, on a session that has run none yet.
func TestWarmConcurrently(t *testing.T) {
	testenv.Need(t, "userns")
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir, mode)
			var wait sync.WaitGroup
			for i := range 64 {
				wait.Go(func() {
					r, err := s.Command(t.Context(), "sh", "-c", "echo $0; exit 3", strconv.Itoa(i)).Capture()
					if err != nil || r.ExitCode != 3 || string(r.Stdout) != strconv.Itoa(i)+"\n" {
						t.Errorf("command %d: %v, %s", i, err, brief(r))
					}
				})
			}
			wait.Wait()
		})
	}
}

// N10: closing the session lets commands run on, and starts no more.
func TestWarmClose(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, dir string) {
		c := startShell(t, s, "echo up; while [ ! -e go ]; do sleep 0.05; done; touch /tmp/x && exit 5")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Command(t.Context(), "true").Run(); !errors.Is(err, cloche.ErrClosed) {
			t.Errorf("a closed session runs: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var exit *cloche.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode != 5 {
			t.Errorf("the command that ran: %v", err)
		}
		if left := parkedBelow(os.Getpid()); len(left) != 0 {
			t.Errorf("parked processes %v are left", left)
		}
	})
}

// parkedBelow returns the parked processes below a process.
func parkedBelow(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		list, _ := os.ReadFile(f)
		for child := range strings.FieldsSeq(string(list)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasSuffix(string(line), "\x00parked\x00") {
				number, _ := strconv.Atoi(child)
				pids = append(pids, number)
			}
		}
	}
	return pids
}

// brief is what a message says about a result, which has many notices.
func brief(r *cloche.Result) string {
	if r == nil {
		return "no result"
	}
	return fmt.Sprintf("status %d %s, %q, %q", r.ExitCode, r.Signal, r.Stdout, r.Stderr)
}

// N10: a parked process that somebody kills is parked anew.
func TestWarmSurvivesKill(t *testing.T) {
	testenv.Need(t, "userns")
	s := openWarm(t, workspace(t), cloche.WithWarmFast())
	for range 3 {
		pids := parkedBelow(os.Getpid())
		if len(pids) != 1 {
			t.Fatalf("parked processes %v, want 1", pids)
		}
		if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// The kernel keeps it until the process that waits for the next command is reaped,
		// which happens when that command comes. So it may not be gone by then.
		for end := time.Now().Add(200 * time.Millisecond); syscall.Kill(pids[0], 0) == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the kill takes effect meanwhile
		}
		if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
			t.Errorf("the next command gave %s", brief(r))
		}
	}
}

// N10: where there is nothing to keep ready, commands still run, and the
// first one says so.
func TestWarmFallsBack(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir, cloche.WithWarm())
	for i := range 2 {
		r := capture(t, s, "echo ran")
		told := slices.ContainsFunc(r.Notices, func(n plan.Notice) bool {
			return n.Kind == plan.NoticeInfo && strings.Contains(n.Text, "not warm: backend none")
		})
		if string(r.Stdout) != "ran\n" || told != (i == 0) {
			t.Errorf("command %d gave %q, told %v", i, r.Stdout, told)
		}
	}
}
