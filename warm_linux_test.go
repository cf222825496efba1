package cloche_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// helperWord makes the test binary a program that runs inside.
const helperWord = "cloche-warm-helper"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperWord {
		if err := helper(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sharedAddresses are reached by all commands of a session, and by nobody else.
var sharedAddresses = [][2]string{{"tcp", "127.0.0.1:7007"}, {"unix", "@cloche-warm-test"}}

// helper listens on each address until it is dialed once, or dials each, or
// spies on processes.
func helper(what string) error {
	switch what {
	case "spy":
		return spy()
	case "apart", "fast":
		return stayWarm(warmModes[what])
	case "unreadable":
		return leaveUnreadable()
	}
	for _, a := range sharedAddresses {
		if what == "dial" {
			conn, err := net.Dial(a[0], a[1])
			if err != nil {
				return fmt.Errorf("%s: %w", ownNetwork(), err)
			}
			conn.Close()
			continue
		}
		l, err := net.Listen(a[0], a[1])
		if err != nil {
			return err
		}
		defer l.Close()
	}
	if what == "listen" {
		fmt.Println(ownNetwork())
		time.Sleep(time.Minute)
	}
	return nil
}

// ownNetwork names the network namespace.
func ownNetwork() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// spy tries to open the memory of every process that it sees until its standard
// input ends, and fails if it was that of the supervisor, under whose name a
// process goes until it has executed something else.
func spy() error {
	done := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, os.Stdin); done <- err }()
	fmt.Println("ready")
	own, err := os.ReadFile("/proc/self/comm")
	for seen := 0; err == nil; {
		select {
		case <-done:
			fmt.Println("processes seen:", seen)
			return nil
		default:
		}
		// New processes have the next numbers.
		last, _ := os.ReadFile("/proc/loadavg")
		fields := strings.Fields(string(last))
		next, _ := strconv.Atoi(fields[len(fields)-1])
		for pid := next; pid < next+3; pid++ {
			f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil {
				continue
			}
			f.Close()
			if seen++; seen == 1 {
				fmt.Println("seen")
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid)); string(comm) == string(own) && err != nil {
				return fmt.Errorf("the memory of process %d (%q) could be opened", pid, comm)
			}
		}
	}
	return err
}

// warmModes are the two ways of being warm.
var warmModes = map[string]cloche.Option{"apart": cloche.Warm(), "fast": cloche.WarmFast()}

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

func (r *recorder) kinds(k audit.Kind) []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e audit.Event) bool { return e.Kind != k })
}

// N10: one command finds nothing of another one: no process, no file in the
// temporary folders, no message queue.
func TestWarmApart(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := openWarm(t, dir, cloche.Warm())
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
	s := openWarm(t, workspace(t), cloche.WarmFast())
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
	s := openWarm(t, workspace(t), cloche.WarmFast())
	for range 3 {
		pids := parkedBelow(os.Getpid())
		if len(pids) != 1 {
			t.Fatalf("parked processes %v, want 1", pids)
		}
		if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// It is gone when all others are, and the one that waits for the next command
		// is reaped when that comes.
		for end := time.Now().Add(200 * time.Millisecond); syscall.Kill(pids[0], 0) == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
			t.Errorf("the next command gave %s", brief(r))
		}
	}
}

// N10 F14: what a rule hides stays hidden when the host replaces it, and is
// hidden when it comes into being.
func TestWarmMasksFollow(t *testing.T) {
	testenv.Need(t, "userns")
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			secret, later, folder := filepath.Join(dir, "secret"), filepath.Join(dir, "later"), filepath.Join(dir, "folder")
			write := func(p string) {
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte("SECRET"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(secret)
			write(folder + "/key")
			s := openWarm(t, dir, mode, policy.HidePaths(secret, folder), func(p *policy.Policy) {
				p.Paths = append(p.Paths, policy.PathRule{Path: later, Access: policy.Hidden, Optional: true, Origin: policy.Origin{Layer: policy.LayerCommand}})
			})
			look := func(when string) {
				t.Helper()
				if r := capture(t, s, "cat secret later folder/key; true"); strings.Contains(string(r.Stdout), "SECRET") {
					t.Errorf("%s: the command reads %q", when, r.Stdout)
				}
			}
			look("at first")
			write(secret + ".new")
			if err := os.Rename(secret+".new", secret); err != nil {
				t.Fatal(err)
			}
			look("after it was replaced")
			write(later)
			look("after another came into being")
			if err := os.Rename(folder, folder+".old"); err != nil {
				t.Fatal(err)
			}
			write(folder + "/key")
			look("after its folder was moved away")
		})
	}
}

// N10 C4: a program outside of what the policy shows can be started.
func TestWarmReachesProgram(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, _ string) {
		for _, name := range []string{"one", "two"} {
			tool := filepath.Join(workspace(t), name) // in /tmp, of which the command has its own
			if err := os.WriteFile(tool, []byte("#!/bin/sh\necho "+name+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := s.Command(t.Context(), tool).Capture()
			if err != nil || string(r.Stdout) != name+"\n" {
				t.Errorf("%s: %v, %s", name, err, brief(r))
			}
		}
	})
}

// N10: rules that depend on a variable or on the working folder follow them.
func TestWarmFollowsVariables(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	for _, sub := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, sub, "own", "entry"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := openWarm(t, dir, cloche.Warm(), policy.HidePaths("?${WHICH:-/nowhere}", "?cwd/own"))
	hidden := func(c *cloche.Cmd, what string) {
		t.Helper()
		// Root may list the empty folder that covers it.
		if r, err := c.Capture(); err != nil || len(r.Stdout) > 0 {
			t.Errorf("%s is shown: %v, %q", what, err, r.Stdout)
		}
	}
	if r := capture(t, s, "ls a/own"); string(r.Stdout) != "entry\n" {
		t.Fatal(brief(r))
	}
	for _, sub := range []string{"a", "b", "a"} {
		c := s.Command(t.Context(), "ls", sub)
		c.Env = append(os.Environ(), "WHICH="+filepath.Join(dir, sub))
		hidden(c, sub)
		c = s.Command(t.Context(), "ls", "own")
		c.Dir = filepath.Join(dir, sub)
		hidden(c, "own in "+sub)
	}
}

// N10: where there is nothing to keep ready, commands run all the same, and the
// first one says so.
func TestWarmFallsBack(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir, cloche.Warm())
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
