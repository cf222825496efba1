package apitest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// spare waits for the init that a caller keeps ready for the next command, and
// returns its number.
func spare(t *testing.T, caller int) int {
	t.Helper()
	var pids []int
	if !testenv.Becomes(func() bool { pids = initsBelow(caller); return len(pids) == 1 }) {
		t.Fatalf("there are %v, want one init that waits", pids)
	}
	return pids[0]
}

// initsBelow returns the inits that are children of a process and wait for a
// command: they get none.
func initsBelow(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		list, _ := os.ReadFile(f)
		for child := range strings.FieldsSeq(string(list)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if bytes.HasPrefix(line, []byte("cloche-init\x00")) && bytes.HasSuffix(line, []byte("\x00--\x00")) {
				number, _ := strconv.Atoi(child)
				pids = append(pids, number)
			}
		}
	}
	return pids
}

// N10: the next command's sandbox is ready before it is asked for. One that was
// killed is made again, and none is left when the session is closed.
func TestWarmSpare(t *testing.T) {
	testenv.AlsoAsUser(t)
	eachWarm(t, testSpare)
}

func testSpare(t *testing.T, s *cloche.Session, _ string) {
	for range 3 {
		pid := spare(t, os.Getpid())
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the killed init ends", func() bool { return state(pid) == "Z" || state(pid) == "" })
		if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
			t.Errorf("the next command gave %s", brief(r))
		}
	}
	pid := spare(t, os.Getpid())
	if r := capture(t, s, "echo $$"); string(r.Stdout) != "2\n" && strings.HasSuffix(t.Name(), "apart") { // the init is 1
		t.Errorf("the next command gave %s", brief(r))
	}
	if next := spare(t, os.Getpid()); next == pid {
		t.Errorf("the init %d serves a second command", pid)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// One that was just being made is let go when it is there.
	if !testenv.Becomes(func() bool { return len(initsBelow(os.Getpid())) == 0 }) {
		t.Fatalf("inits %v are left", initsBelow(os.Getpid()))
	}
}

// stayWarm opens a session that has run a command, and waits to be killed.
func stayWarm(mode cloche.Option) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s, err := cloche.Open(context.Background(), policy.Workspace(dir).With(policy.WithBackend("native")), cloche.WithWorkspace(dir), mode)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Command(context.Background(), "true").Run(); err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Minute) // until it is killed
	return nil
}

// N10 F12: a caller that is killed takes the sandbox that waits with it.
func TestWarmSpareDiesWithCaller(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	for name := range warmModes {
		t.Run(name, func(t *testing.T) { testSpareDies(t, name) })
	}
}

func testSpareDies(t *testing.T, mode string) {
	caller := exec.Command("/proc/self/exe", helperWord, mode)
	caller.Dir = workspace(t)
	out, err := caller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	pid := spare(t, caller.Process.Pid)
	_ = caller.Process.Kill()
	_ = caller.Wait() // it was killed
	// In a container this test may be the first process, which orphans are left to.
	testenv.Eventually(t, fmt.Sprintf("the init %d ends", pid), func() bool { return state(pid) == "" || state(pid) == "Z" })
}

// state is the state of a process, or "" if there is none.
func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return string(rest[:min(1, len(rest))])
}

// N10: a command has what its caller has when it starts it, and not what that had
// when the sandbox was made.
func TestWarmSpareInherits(t *testing.T) { eachWarm(t, testSpareInherits) }

func testSpareInherits(t *testing.T, s *cloche.Session, _ string) {
	for _, mask := range []int{0o077, 0o022, 0o027} {
		spare(t, os.Getpid())
		old := syscall.Umask(mask)
		r := capture(t, s, "umask; >made; stat -c %a made; rm made; umask 007; >made; stat -c %a made; rm made")
		syscall.Umask(old)
		// The broker makes files for the command, with its mask.
		if got, want := string(r.Stdout), fmt.Sprintf("%04o\n%o\n660\n", mask, 0o666&^mask); got != want {
			t.Errorf("umask and modes of files %q, want %q", got, want)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_STACK, &limit) })
	spare(t, os.Getpid())
	lower := limit
	lower.Cur = 4 << 20
	if err := unix.Setrlimit(unix.RLIMIT_STACK, &lower); err != nil {
		t.Fatal(err)
	}
	if r := capture(t, s, "ulimit -s"); string(r.Stdout) != "4096\n" {
		t.Errorf("the limit of the stack: %s", brief(r))
	}
}

// N10: in a fast session a command can send signals to the one that waits to
// become the next command. What came before that began does nothing to it, unless
// it ends what waits; and one that is stopped is subject to its limits.
func TestWarmFastSpareSignaled(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	s := openWarm(t, workspace(t), cloche.WithWarmFast(), policy.WithLimits(policy.Limits{Time: testenv.Patience}))
	for _, signal := range []string{"TERM", "HUP", "USR1", "TSTP", "KILL"} {
		spare(t, os.Getpid())
		capture(t, s, "trap '' "+signal+"; kill -"+signal+" -1; :") // itself, too, if it is KILL
		if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
			t.Errorf("after SIG%s the next command gave %s", signal, brief(r))
		}
	}
	pid := spare(t, os.Getpid())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r, err := s.Command(ctx, "echo", "here").Capture(); err == nil && !r.Canceled {
		t.Errorf("a command whose process is stopped gave %s", brief(r))
	}
	if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
		t.Errorf("after that the next command gave %s", brief(r))
	}
}

// N10: a program that cannot be executed, a folder that is gone, and one that
// cannot be entered are reported as for any other command.
func TestWarmSpareErrors(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, dir string) {
		script := filepath.Join(dir, "bad")
		if err := os.WriteFile(script, []byte("#!"+dir+"/interpreter\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		spare(t, os.Getpid())
		err := s.Command(t.Context(), script).Run()
		if found, ok := errors.AsType[*cloche.ExecError](err); !ok || found.Errno != syscall.ENOENT {
			t.Errorf("a script without an interpreter: %v", err)
		}
		spare(t, os.Getpid())
		c := s.Command(t.Context(), "true")
		c.Dir = filepath.Join(dir, "missing")
		if err := c.Run(); err == nil {
			t.Error("a folder that is missing: no error")
		}
		if r := capture(t, s, "echo here"); string(r.Stdout) != "here\n" {
			t.Errorf("the next command gave %s", brief(r))
		}
	})
}

// N10: a command that is handed over takes arguments and variables of any size.
func TestWarmLargeCommand(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, _ string) {
		c := s.Command(t.Context(), "sh", "-c", `echo ${#V0} ${#V9} ${#1}`, "sh", strings.Repeat("a", 100_000))
		for i := range 10 {
			c.SetEnv(fmt.Sprintf("V%d", i), strings.Repeat("v", 100_000+i))
		}
		if r, err := c.Capture(); err != nil || string(r.Stdout) != "100000 100009 100000\n" {
			t.Errorf("%v, %s", err, brief(r))
		}
	})
}
