package initprog

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A sandbox is an init that runs as pid 1 of a real pid namespace.
type sandbox struct {
	t        *testing.T
	cmd      *exec.Cmd
	status   *os.File
	lifeline *os.File
	ends     [2]*os.File // the init's ends of the two pipes
	out      *os.File
}

func writeInit(t *testing.T) string {
	t.Helper()
	bin, err := Binary()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "cloche-init")
	if err := os.WriteFile(path, bin, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// isolated is a user and a pid namespace, with no change of user.
func isolated() *syscall.SysProcAttr {
	id := func(n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: n, HostID: n, Size: 1}}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: id(os.Getuid()),
		GidMappings: id(os.Getgid()),
	}
}

// prepare makes a sandbox that is not yet started.
func prepare(t *testing.T, c Config) *sandbox {
	t.Helper()
	testenv.Need(t, "userns")
	s := &sandbox{t: t}
	var err error
	if s.status, s.ends[0], err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if s.ends[1], s.lifeline, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{s.status, s.lifeline, s.ends[0], s.ends[1], s.out} {
			f.Close()
		}
	})
	c.StatusFD, c.LifelineFD = 3+c.KeepFDs, 4+c.KeepFDs
	path := writeInit(t)
	if s.out, err = os.CreateTemp(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
	s.cmd = &exec.Cmd{Path: path, Args: c.Argv("cloche-init"), SysProcAttr: isolated()}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	for range c.KeepFDs {
		s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, open(t, os.DevNull))
	}
	s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, s.ends[0], s.ends[1])
	return s
}

// output is what the command has printed so far.
func (s *sandbox) output() string {
	b, err := os.ReadFile(s.out.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *sandbox) start() {
	s.t.Helper()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range s.ends {
		f.Close()
	}
}

// shell is a Config that runs a script with no limits.
func shell(script string) Config {
	return Config{
		Processes: None, OpenFiles: None, FileSize: None,
		Path: "/bin/sh", Args: []string{"sh", "-c", script},
	}
}

func run(t *testing.T, c Config) *sandbox {
	t.Helper()
	s := prepare(t, c)
	s.start()
	return s
}

// record reads the next record and compares its type.
func (s *sandbox) record(want RecordType) Record {
	s.t.Helper()
	s.status.SetReadDeadline(time.Now().Add(testenv.Patience))
	rec, err := ReadRecord(s.status)
	if err != nil {
		s.t.Fatalf("waiting for record %d: %v; output: %s", want, err, s.output())
	}
	if rec.Type != want {
		s.t.Fatalf("record %+v, want type %d; output: %s", rec, want, s.output())
	}
	return rec
}

// exit waits for the init and returns its exit code, -1 for a signal.
func (s *sandbox) exit() int {
	s.t.Helper()
	done := make(chan struct{})
	go func() { s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		s.cmd.Process.Kill()
		<-done
		s.t.Fatal("the init did not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

// waitFor polls until the script has made the file.
func waitFor(t *testing.T, file string) {
	t.Helper()
	testenv.Eventually(t, file+" is made", func() bool { _, err := os.Stat(file); return err == nil })
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		script string
		status unix.WaitStatus
		code   int
	}{
		{"exit 0", 0, 0},
		{"exit 42", 42 << 8, 42},
		{"kill -TERM $$; sleep 60", 15, 143},
		{"kill -KILL $$; sleep 60", 9, 137},
	} {
		s := run(t, shell(tt.script))
		s.record(Started)
		if rec := s.record(Exited); unix.WaitStatus(rec.Value) != tt.status {
			t.Errorf("%q: wait status %#x, want %#x", tt.script, rec.Value, tt.status)
		}
		if code := s.exit(); code != tt.code {
			t.Errorf("%q: exit code %d, want %d", tt.script, code, tt.code)
		}
	}
}

func TestExecFailure(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path  string
		errno unix.Errno
		code  int
	}{
		{"/nowhere/at/all", unix.ENOENT, 127},
		{text + "/below", unix.ENOTDIR, 127},
		{dir, unix.EACCES, 126},
		{text, unix.ENOEXEC, 126},
	} {
		c := shell("")
		c.Path = tt.path
		s := run(t, c)
		if rec := s.record(ExecFailed); rec.Errno() != tt.errno {
			t.Errorf("%s: errno %v, want %v", tt.path, rec.Errno(), tt.errno)
		}
		if code := s.exit(); code != tt.code {
			t.Errorf("%s: exit code %d, want %d", tt.path, code, tt.code)
		}
	}
}

func TestBadArguments(t *testing.T) {
	s := prepare(t, shell("exit 0"))
	s.cmd.Args[4] = "2x"
	s.start()
	if rec := s.record(SetupFailed); rec.Step() != StepArguments || rec.Errno() != unix.EINVAL {
		t.Errorf("%v: %v", rec.Step(), rec.Errno())
	}
	if code := s.exit(); code != 125 {
		t.Errorf("exit code %d, want 125", code)
	}
}

// F12
func TestBackgroundJobsDieWithTheCommand(t *testing.T) {
	marker := fmt.Sprint(770000 + os.Getpid())
	s := run(t, shell("trap '' TERM HUP; (setsid sleep "+marker+" >/dev/null 2>&1 &); sleep "+marker+" >/dev/null 2>&1 & exit 3"))
	s.record(Started)
	s.record(Exited)
	if code := s.exit(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	noProcess(t, marker)
}

// F12
func TestLifelineEndsTheTree(t *testing.T) {
	marker := fmt.Sprint(780000 + os.Getpid())
	s := run(t, shell("trap '' TERM HUP INT; (setsid sleep "+marker+" &); sleep "+marker))
	s.record(Started)
	s.lifeline.Close()
	if code := s.exit(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	noProcess(t, marker)
}

// A supervisor that dies while the sandbox is being made leaves nothing.
func TestLifelineGoneBeforeStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	s := prepare(t, shell("echo >"+file))
	s.lifeline.Close()
	s.start()
	if code := s.exit(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if _, err := ReadRecord(s.status); err == nil {
		t.Error("the command was started")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

func noProcess(t *testing.T, marker string) {
	t.Helper()
	testenv.Eventually(t, "no process has "+marker+" in its arguments", func() bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, l := range lines {
			b, _ := os.ReadFile(l)
			if bytes.Contains(b, []byte("sleep\x00"+marker)) {
				return false
			}
		}
		return true
	})
}

func TestOrphansAreReaped(t *testing.T) {
	dir := t.TempDir()
	s := run(t, shell(`for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 7' & ) ; done; sleep 0.1; echo >`+dir+`/made; while [ ! -e `+dir+`/go ]; do sleep 0.02; done`))
	s.record(Started)
	waitFor(t, dir+"/made")
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid)
	testenv.Eventually(t, "the init has only the command left", func() bool {
		b, err := os.ReadFile(children)
		return err == nil && len(strings.Fields(string(b))) == 1
	})
	os.WriteFile(dir+"/go", nil, 0o644)
	s.record(Exited)
	s.exit()
}

func TestSignalsAreForwarded(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGPIPE} {
		file := filepath.Join(t.TempDir(), "ready")
		s := run(t, shell(fmt.Sprintf("trap 'exit 9' %d; echo >%s; while :; do sleep 0.02; done", sig, file)))
		s.record(Started)
		waitFor(t, file)
		s.cmd.Process.Signal(sig)
		if rec := s.record(Exited); rec.Value != 9<<8 {
			t.Errorf("%v: wait status %#x", sig, rec.Value)
		}
		s.exit()
	}
}

// F12: a supervisor that cannot be told anything is gone, whatever the lifeline
// says: the launcher of a wrapped command holds only the status.
func TestStatusReaderGone(t *testing.T) {
	s := run(t, shell("sleep 60"))
	s.record(Started)
	child := firstChild(t, s.cmd.Process.Pid)
	s.status.Close()
	if code := s.exit(); code != 128+int(unix.SIGKILL) {
		t.Errorf("exit code %d, want that of a tree that was ended", code)
	}
	if state(child) != "" {
		t.Error("the command lives on")
	}
}

func firstChild(t *testing.T, pid int) int {
	t.Helper()
	var child int
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &child); err != nil {
		t.Fatalf("no child of %d: %v", pid, err)
	}
	return child
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return string(rest[:min(1, len(rest))])
}

// N10: a parked init starts nothing, is deaf to signals, and ends with its
// lifeline.
func TestParked(t *testing.T) {
	c := Config{Park: true, Processes: None, OpenFiles: None, FileSize: None}
	s := prepare(t, c)
	s.start()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGCHLD} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // it stays all that time
		if err := s.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("the init is gone: %v", err)
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.cmd.Process.Pid, s.cmd.Process.Pid))
	if err != nil || len(children) != 0 {
		t.Errorf("children %q (%v)", children, err)
	}
	s.lifeline.Close()
	if code := s.exit(); code == 0 {
		t.Errorf("exit code %d, want that of a tree that was ended", code)
	}
}
