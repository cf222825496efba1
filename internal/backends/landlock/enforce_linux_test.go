package landlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/landlock"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// An older backend is one that takes the kernel for an older one.
type older struct {
	*landlock.Backend
	abi int
}

func (o older) Name() string { return "landlock-abi-" + strconv.Itoa(o.abi) }

func (o older) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	own := *s
	own.Landlock.ABI = min(o.abi, s.Landlock.ABI)
	return o.Backend.Compile(p, &own)
}

func olderEntries() (list []backend.Entry) {
	for abi := 1; abi < kernelABI(); abi++ {
		list = append(list, backend.Entry{Backend: older{entry.Backend.(*landlock.Backend), abi}})
	}
	return list
}

func kernelABI() int {
	s, err := machine.Collect("")
	if err != nil {
		return 0
	}
	return s.Landlock.ABI
}

// W3: the downgrade for each ABI, on a real kernel, which takes the rulesets of
// all older ones.
func TestOlderABIs(t *testing.T) {
	testenv.Need(t, "landlock")
	for _, e := range olderEntries() {
		t.Run(e.Backend.Name(), func(t *testing.T) {
			backendtest.Run(t, e, backendtest.Options{Only: []string{"paths/", "masks/", "processes/end-with-the-run", "residue/killed"}})
		})
	}
}

// run runs a shell script under the preset "workspace" and returns what it said.
func run(t *testing.T, script string, opts ...policy.Option) *cloche.Result {
	t.Helper()
	r, err := command(t, t.Context(), script, opts...).Capture()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func command(t *testing.T, ctx context.Context, script string, opts ...policy.Option) *cloche.Cmd {
	t.Helper()
	p, err := policy.FromPreset("workspace")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := backend.NewRegistry(entry)
	if err != nil {
		t.Fatal(err)
	}
	p = p.With(policy.WithBackend(landlock.Name), policy.WithRequire(policy.BestEffort)).With(opts...)
	s, err := cloche.Open(ctx, p, cloche.WithRegistry(registry), cloche.WithWorkspace(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Command(ctx, "sh", "-c", script)
}

// N4 F11: nor are limits and priorities of a process outside set. A limit on its
// processor time would kill it.
func TestOtherProcessesKeepLimits(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	victim := exec.Command("sleep", "300")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	look := func() string {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", victim.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		nice, err := unix.Getpriority(unix.PRIO_PROCESS, victim.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		err = unix.SchedGetaffinity(victim.Process.Pid, &set)
		return fmt.Sprintf("%snice %d, processors %v %v", limits, nice, set, err)
	}
	before := look()
	r := run(t, fmt.Sprintf("prlimit --pid %[1]d --core=1:1 --nofile=9:9; renice -n 7 -p %[1]d; renice -n 7 -u %[2]d; "+
		"taskset -p 1 %[1]d; chrt -i -p 0 %[1]d; ionice -c 3 -p %[1]d; nice -n 3 true && exit 9", victim.Process.Pid, os.Getuid()))
	if r.ExitCode != 9 {
		t.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
	if after := look(); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

// N4 F11: the gap "processes" is about seeing. Signals and everything that
// needs to trace a process stop at the sandbox.
func TestOtherProcesses(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	if kernelABI() < 6 {
		t.Skip("needs Landlock ABI 6 (Linux 6.12)")
	}
	victim := exec.Command("sleep", "300")
	victim.Env = []string{"SECRET=in-the-environment"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGWINCH)
	defer signal.Stop(got)
	pid := victim.Process.Pid
	r := run(t, fmt.Sprintf("kill -KILL %d; kill -WINCH %d; kill -WINCH -1; cat /proc/%[1]d/environ /proc/%[1]d/maps; cat /proc/%[1]d/root/etc/passwd; readlink /proc/%[1]d/fd/0 /proc/%[1]d/exe /proc/%[1]d/cwd; exit 9", pid, os.Getpid()))
	if r.ExitCode != 9 || len(r.Stdout) > 0 {
		t.Errorf("exit code %d, output %q", r.ExitCode, r.Stdout)
	}
	if victim.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the process outside was killed")
	}
	select {
	case <-got:
		t.Error("a signal from inside reached the caller")
	case <-time.After(50 * time.Millisecond):
	}
}

// start starts a script that prints the pid of its init first, and returns that.
func start(t *testing.T, c *cloche.Cmd) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Stdout = w
	err = c.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// sleeping counts the processes that sleep for a time that only one test uses.
func sleeping(seconds string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if line, _ := os.ReadFile(f); strings.Contains(string(line), "sleep\x00"+seconds+"\x00") {
			n++
		}
	}
	return n
}

// F12: an init that somebody stopped still ends its tree.
func TestStoppedInit(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	seconds := strconv.Itoa(700000 + os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := command(t, ctx, "echo $PPID; (setsid sleep "+seconds+" &); sleep "+seconds)
	pid := start(t, c)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	var exit *cloche.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || !exit.Canceled {
		t.Errorf("Wait gave %v", err)
	}
	if n := sleeping(seconds); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// F12: of an init that somebody killed, what is in its session goes with it.
func TestKilledInit(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	seconds := strconv.Itoa(800000 + os.Getpid())
	c := command(t, t.Context(), "echo $PPID; sleep "+seconds+" & sleep "+seconds)
	pid := start(t, c)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *cloche.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode != 137 {
		t.Errorf("Wait gave %v", err)
	}
	if n := sleeping(seconds); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// L6 F3: root has nothing to gain: the kernel's settings cannot be written.
func TestKernelFiles(t *testing.T) {
	testenv.Need(t, "landlock")
	r := run(t, "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /proc/self/oom_score_adj /sys/kernel/uevent_helper /sys/fs/cgroup/release_agent; do : >>$f && echo $f; done; exit 0")
	if len(r.Stdout) > 0 {
		t.Errorf("can be opened for writing: %s", r.Stdout)
	}
}

// N13: the kernel nests 16 domains. Deeper sandboxes are refused before anything
// runs, with the reason.
func TestTooManyNested(t *testing.T) {
	testenv.Need(t, "landlock")
	s, err := machine.Collect("")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan host.Probe, 2)
	go func() {
		runtime.LockOSThread() // the domains are this thread's, which ends with the goroutine
		done <- nest(13, s)
		done <- nest(1, s)
	}()
	if p := <-done; p.Outcome != host.Yes {
		t.Errorf("with room for three domains: %+v", p)
	}
	if p := <-done; p.Outcome != host.No || p.Cause != cause.Container || !strings.Contains(p.Reason, "nested") {
		t.Errorf("with room for two domains: %+v", p)
	}
}

// nest enters n domains that deny little, and asks for a sandbox in them.
func nest(n int, s *host.Snapshot) host.Probe {
	ruleset := [1]uint64{unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&ruleset)), unsafe.Sizeof(ruleset), 0)
	if errno != 0 {
		return host.Probe{Reason: errno.Error()}
	}
	defer unix.Close(int(fd))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return host.Probe{Reason: err.Error()}
	}
	for range n {
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
			return host.Probe{Reason: errno.Error()}
		}
	}
	return landlock.Probe(context.Background(), s)
}

// A child of a taken-apart folder that is gone, or has become something else,
// between plan and launch is out of reach, and lends its rights to nothing else.
func TestEntriesThatChange(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	ws := t.TempDir()
	for _, name := range []string{"a", "b", "hidden", "z"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.FromPreset("workspace")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := backend.NewRegistry(entry)
	if err != nil {
		t.Fatal(err)
	}
	p = p.With(policy.WithBackend(landlock.Name), policy.WithRequire(policy.BestEffort), policy.HidePaths(ws+"/hidden"))
	s, err := cloche.Open(t.Context(), p, cloche.WithRegistry(registry), cloche.WithWorkspace(ws))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.Command(t.Context(), "sh", "-c", "cat hidden b/x a; echo changed >z; cat z; ls; exit 0")
	c.Prepared = func(*plan.Plan, *backend.Launch) {
		for _, err := range []error{
			os.Remove(ws + "/a"), os.Remove(ws + "/b"), os.Mkdir(ws+"/b", 0o755), os.WriteFile(ws+"/b/x", []byte("new"), 0o644),
			os.Symlink("hidden", ws+"/a"),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	r, err := c.Capture()
	if err != nil {
		t.Fatal(err)
	}
	if want := "newchanged\na\nb\nhidden\nz\n"; string(r.Stdout) != want {
		t.Errorf("inside: %q, want %q (%s)", r.Stdout, want, r.Stderr)
	}
}
