package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/https"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// roleVariable makes this program something else than its tests.
const roleVariable = "CLOCHE_CLIENTS_ROLE"

const (
	roleCommand = "cloche" // the command line under test
	roleClient  = "client" // a Go program inside
	roleHTTPS   = "https"  // the command line with a look inside TLS
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleCommand:
		os.Exit(cli.Main(os.Args[1:]))
	case roleHTTPS:
		os.Exit(cli.MainWith(os.Args[1:], https.Inspect))
	case roleClient:
		unix.Exit(goClient(os.Args[1:])) // not os.Exit: with the race detector that sleeps first
	}
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "__") { // cloche starts itself as a prober
		os.Exit(cli.Main(os.Args[1:]))
	}
	testnet.Main(m)
}

// A report is the part of cloche's JSON report that is looked at.
type report struct {
	Ran      bool
	Messages []string
	Result   struct {
		Denied []struct {
			Op, Host, Path, Protocol, Method, Rule, Program, Grant string
			Port, Count                                            int
		}
		Connections []connection
	}
}

type connection struct {
	Name, Addr, Protocol, Rule, Program, Direction string
	Port                                           int
	Allowed                                        bool
	Sent, Received                                 int64
}

// An outcome is how one run went.
type outcome struct {
	status         int
	stdout, stderr string
	report         report
}

// A sandbox is how commands are run in one test.
type sandbox struct {
	backend   string
	workspace string
	home      string
	flags     []string
	// env are more variables of cloche, which passes few of them on.
	env []string
}

// eachBackend runs a test on both backends that have a network of their own.
func eachBackend(t *testing.T, test func(t *testing.T, s *sandbox)) {
	t.Helper()
	testnet.Need(t)
	for _, name := range []string{"native", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			if name == "bwrap" {
				testenv.Need(t, "bwrap")
			}
			s := &sandbox{backend: name, workspace: t.TempDir(), home: t.TempDir()}
			test(t, s)
		})
	}
}

// with returns the sandbox with more options.
func (s *sandbox) with(flags ...string) *sandbox {
	own := *s
	own.flags = append(slices.Clone(s.flags), flags...)
	return &own
}

const runTime = 2 * time.Minute

// run runs a command inside, through the command line.
func (s *sandbox) run(t *testing.T, command ...string) *outcome {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report")
	args := append([]string{"run", "--backend", s.backend, "--report", file, "--ro", testnet.Dir()}, s.flags...)
	args = append(append(args, "--"), command...)
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Dir = s.workspace
	c.Env = []string{roleVariable + "=" + roleCommand, "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "HOME=" + s.home, "LANG=C.UTF-8", "USER=ana"}
	c.Env = append(c.Env, s.env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := &outcome{status: c.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
		if err := json.Unmarshal(text, &o.report); err != nil {
			t.Fatalf("the report: %v\n%s", err, text)
		}
	}
	return o
}

// goProgram is this program as a client inside.
func (s *sandbox) goProgram(t *testing.T, args ...string) *outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return s.with("--env", roleVariable+"="+roleClient).run(t, append([]string{self}, args...)...)
}

// refused reports whether the denial of a host is recorded, as a denial and as
// a connection or a question that was not allowed.
func (o *outcome) refused(host string) bool {
	for _, d := range o.report.Result.Denied {
		if d.Host == host && d.Rule != "" {
			return true
		}
	}
	return false
}

// connected returns the record of an allowed connection: of several the one that was used.
// A client that waits too long for an answer on one family of addresses connects to the
// other as well.
func (o *outcome) connected(name string, port int) *connection {
	var used *connection
	for i := range o.report.Result.Connections {
		c := &o.report.Result.Connections[i]
		if c.Allowed && c.Port == port && (c.Name == name || c.Addr == name) && (used == nil || c.Received > used.Received) {
			used = c
		}
	}
	return used
}

// seen is what the servers saw since an earlier log.
func seen(t *testing.T) *testnet.Log {
	t.Helper()
	l, err := testnet.Seen()
	if err != nil {
		t.Fatal(err)
	}
	return l
}
