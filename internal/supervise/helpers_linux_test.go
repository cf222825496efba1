package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// helperEnv makes the test binary a small cloche: it runs the script in its
// argument in a sandbox and stands for it. Some tests have to kill it, or run it
// under a shell.
const helperEnv = "CLOCHE_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		os.Exit(helper(mode, os.Args[1]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/cloche-dev/cloche/internal/supervise.spawnerThread"))
}

func helper(mode, script string) int {
	terminal := Wants(TTYAuto, os.Stdin, os.Stdout)
	var spec Spec
	if mode == "none" {
		spec = noLimits(noneLaunch(script))
	} else {
		spec = noLimits(bwrapLaunch(script, 0, terminal))
	}
	spec.Stdin, spec.Stdout, spec.Stderr, spec.Terminal = os.Stdin, os.Stdout, os.Stderr, terminal
	if mode == "die" {
		fmt.Println("ready")
	}
	catcher := Catch()
	defer catcher.Stop()
	if mode == "early" {
		fmt.Println("ready")
		select {} // a start that hangs
	}
	p, err := Start(context.Background(), spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	defer p.RestoreTerminal()
	catcher.Forward(p)
	o, err := p.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return o.ExitCode
}

var testEnv = []string{"PATH=/usr/bin:/bin", "HOME=/", "TERM=dumb"}

// noneLaunch runs a script with no sandbox.
func noneLaunch(script string) *backend.Launch {
	return &backend.Launch{
		Backend: "none", Argv: []string{"/bin/sh", "-c", script}, Env: testEnv, Dir: "/",
	}
}

const initPath = "/run/cloche-init"

// bwrapLaunch runs a script in a sandbox that shows the host, with a private
// /proc, /dev and /run. The files below /tmp are writable.
func bwrapLaunch(script string, extra int, terminal bool) *backend.Launch {
	init, err := initprog.Binary()
	if err != nil {
		panic(err)
	}
	l := &backend.Launch{
		Backend: "bwrap", Env: testEnv, Dir: "/", FirstFD: 3 + extra, Confined: true, Extras: builtin.Extras{Init: true},
	}
	fd := func(f backend.File) string {
		l.Files = append(l.Files, f)
		return strconv.Itoa(l.FirstFD + len(l.Files) - 1)
	}
	c := initprog.Config{
		Terminal: terminal, KeepFDs: extra, Processes: -1, OpenFiles: -1, FileSize: -1,
		Path: "/bin/sh", Args: []string{"sh", "-c", script},
	}
	c.StatusFD, _ = strconv.Atoi(fd(backend.File{Kind: builtin.InitStatus}))
	c.LifelineFD, _ = strconv.Atoi(fd(backend.File{Kind: builtin.Lifeline}))
	args := []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--bind", "/tmp", "/tmp",
		"--tmpfs", "/run", "--perms", "0555", "--ro-bind-data", fd(backend.File{Kind: backend.Data, Data: init}), initPath,
		"--json-status-fd", fd(backend.File{Kind: builtin.BwrapStatus}),
	}
	options := []byte(strings.Join(args, "\x00") + "\x00")
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		bwrap = "/usr/bin/bwrap"
	}
	l.Argv = append([]string{bwrap, "--args", fd(backend.File{Kind: backend.Data, Data: options}), "--"}, c.Argv(initPath)...)
	return l
}

// each runs a test in a sandbox and without one.
func each(t *testing.T, test func(t *testing.T, spec func(script string) Spec)) {
	t.Run("bwrap", func(t *testing.T) {
		testenv.Need(t, "bwrap")
		test(t, func(script string) Spec {
			s := noLimits(bwrapLaunch(script, 0, false))
			s.Command = "/bin/sh"
			return s
		})
	})
	t.Run("none", func(t *testing.T) {
		test(t, func(script string) Spec { return noLimits(noneLaunch(script)) })
	})
}

// run runs to the end and returns what was printed.
func run(t testing.TB, spec Spec) (Outcome, string) {
	t.Helper()
	var out bytes.Buffer
	if spec.Stdout == nil {
		spec.Stdout, spec.Stderr = &out, &out
	}
	p := begin(t, spec)
	return wait(t, p), out.String()
}

func begin(t testing.TB, spec Spec) *Process {
	t.Helper()
	return beginWith(t, context.Background(), spec)
}

func beginWith(t testing.TB, ctx context.Context, spec Spec) *Process {
	t.Helper()
	p, err := Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t testing.TB, p *Process) Outcome {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(testenv.Patience):
		t.Fatal("Wait hangs")
	}
	o, err := p.Wait()
	if err != nil {
		t.Error(err)
	}
	return o
}

func waitFor(t testing.TB, file string) {
	t.Helper()
	testenv.Eventually(t, file+" is made", func() bool { _, err := os.Stat(file); return err == nil })
}

// marker is an argument for sleep that finds its processes again.
func marker() string { return fmt.Sprintf("9%d", time.Now().UnixNano()%1e9+1e9) }

// alive returns the processes that have the text in their arguments.
func alive(text string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		if b, _ := os.ReadFile(l); bytes.Contains(b, []byte(text)) && !strings.Contains(l, strconv.Itoa(os.Getpid())) {
			found = append(found, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cloche")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
