package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/agents"
	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// shared is what all tests of this package use, and TestMain removes.
var shared struct {
	sync.Mutex
	network *network
	bin     string
}

func TestMain(m *testing.M) {
	// Agents mostly wait.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU())); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.network != nil {
		shared.network.hold.Close()
	}
	if shared.bin != "" {
		_ = os.RemoveAll(shared.bin)
	}
	os.Exit(code)
}

// A network has nothing but loopback: agents that are not confined reach no host.
type network struct {
	*netns.Namespace
	pid  int
	hold io.Closer
}

// loopback returns the network. The process that holds it ends with the test process, whatever ends that.
func loopback(t *testing.T) *network {
	t.Helper()
	testenv.Need(t, "userns", "unshare", "nsenter")
	shared.Lock()
	defer shared.Unlock()
	if shared.network != nil {
		return shared.network
	}
	argv := []string{"unshare", "-n", "sh", "-c", "echo made; exec cat"}
	if os.Getuid() != 0 {
		argv = slices.Insert(argv, 1, "-U", "--map-current-user")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if made, err := io.ReadAll(io.LimitReader(out, 5)); string(made) != "made\n" {
		t.Fatalf("%q said %q (%v)", argv, made, err)
	}
	f, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := netns.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	shared.network = &network{Namespace: n, pid: cmd.Process.Pid, hold: in}
	return shared.network
}

// enter is how a program is started in the network.
func (n *network) enter() []string {
	argv := []string{"nsenter", "-t", strconv.Itoa(n.pid), "-n"}
	if os.Getuid() != 0 {
		argv = append(argv, "-U", "--preserve-credentials")
	}
	return append(argv, "--")
}

// A box is the machine of a person who uses an agent: a home folder with a secret in it, a project, and a PATH with
// cloche and the agents. It is in the user's own home folder, because a sandbox has its own
// temporary folders.
type box struct {
	*network
	*Model
	name     string
	home, ws string
	env      []string
	start    Start
}

const secret = "the-planted-key"

// newBox makes one. The model's part is the steps.
func newBox(t *testing.T, name string, steps ...Step) *box {
	t.Helper()
	testenv.Need(t, "agents", "go")
	b := &box{network: loopback(t), name: name}
	dir, err := os.MkdirTemp(ownHome(t), "cloche-agents-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Cline leaves a daemon behind.
		testenv.Eventually(t, "the folder is removed", func() bool { return !b.endAll(t) && os.RemoveAll(dir) == nil })
	})
	b.home, b.ws = filepath.Join(dir, "home"), filepath.Join(dir, "ws")
	write(t, filepath.Join(b.home, ".ssh", "id_test"), secret+"\n")
	write(t, filepath.Join(b.ws, ".git", "HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(b.ws, "sub", "file"), "")
	b.env = []string{"HOME=" + b.home, "PATH=" + programs(t) + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "SHELL=/bin/bash", "USER=" + os.Getenv("USER"), "TERM=dumb"}
	l, err := b.ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	b.Model = NewScript(t, l, steps...)
	b.start = Prepare(t, name, b.home, b.Model)
	return b
}

// endAll ends the processes that have the home folder of the box, and reports whether there were any.
func (b *box) endAll(t *testing.T) (some bool) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if pid, number := strconv.Atoi(e.Name()); err == nil && number == nil && bytes.Contains(env, []byte("HOME="+b.home+"\x00")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			some = true
		}
	}
	return some
}

func ownHome(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// programs is a folder with cloche and the agents, under the names that they have for people.
func programs(t *testing.T) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.bin != "" {
		return shared.bin
	}
	dir, err := os.MkdirTemp(ownHome(t), "cloche-programs-")
	if err != nil {
		t.Fatal(err)
	}
	shared.bin = dir
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", dir+"/", "../../cmd/cloche", "../../cmd/cloche-mcp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	for name, a := range known {
		agent, err := agents.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, agent.Programs[0])
		write(t, file, "#!/bin/sh\nexec "+strings.Join(a.start(), " ")+` "$@"`+"\n")
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An outcome is how a program ended.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs a program in the project.
func (b *box) exec(t *testing.T, env []string, argv ...string) outcome {
	t.Helper()
	// Agents are slow to start, and wait for hosts.
	ctx, cancel := context.WithTimeout(t.Context(), 2*testenv.Patience)
	defer cancel()
	argv = append(b.enter(), argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = b.ws, slices.Concat(b.env, env)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = testenv.Patience / 10
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("%q: %v, printed:\n%s%s", argv, err, &stdout, &stderr)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// cloche runs cloche and expects an exit status.
func (b *box) cloche(t *testing.T, status int, args ...string) string {
	t.Helper()
	r := b.exec(t, nil, append([]string{"cloche"}, args...)...)
	if r.status != status {
		t.Errorf("cloche %q: exit status %d, want %d, printed:\n%s%s", args, r.status, status, r.stdout, r.stderr)
	}
	return r.stdout
}

// inside runs the whole agent in a sandbox. It reaches the model, and no host.
func (b *box) inside(t *testing.T, flags ...string) reported {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report")
	// The agents are in /var/tmp, of which a sandbox has its own.
	argv := []string{"cloche", "agent", "run", "--report", file, "--net", "user", "--deny", "*", "--forward", strconv.Itoa(b.Port), "--ro", testenv.AgentsDir}
	for _, v := range b.start.Env {
		argv = append(argv, "--env", v)
	}
	r := reported{outcome: b.exec(t, nil, slices.Concat(argv, flags, []string{b.name}, b.start.Args)...)}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; exit status %d, printed:\n%s%s", err, r.status, r.stdout, r.stderr)
	}
	if err := json.Unmarshal(text, &struct{ Result any }{&r.report}); err != nil {
		t.Fatal(err)
	}
	return r
}

// A reported outcome is that of a whole agent in a sandbox.
type reported struct {
	outcome
	report struct {
		Confined bool
		Denied   []plan.Denial
	}
}

// outside runs the agent without a sandbox around it.
func (b *box) outside(t *testing.T, args ...string) outcome {
	t.Helper()
	agent, err := agents.Find(b.name)
	if err != nil {
		t.Fatal(err)
	}
	return b.exec(t, b.start.Env, slices.Concat(agent.Programs, b.start.Args, args)...)
}
