package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/https"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/desksocket"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// asServer makes the test binary the server.
const asServer = "CLOCHE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(cli.MCPMain(os.Args[1:], serve, https.Inspect))
	}
	os.Exit(m.Run())
}

// An agent is a client with a server of its own, and the folders around it: a
// workspace, a home folder with secrets, and a folder beside them.
type agent struct {
	*mcp.ClientSession
	t              testing.TB
	cmd            *exec.Cmd
	base, ws, home string
	beside         string
	stderr         *syncBuffer
	// leave closes the connection; ended has how the server ended.
	leave func() error
	ended chan error

	// person answers the questions that the server asks through the client; nil if the
	// client cannot ask.
	person func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)

	mu         sync.Mutex
	progress   []string
	progressed chan struct{}
}

// A syncBuffer can be read while a process writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newAgent makes the folders and connects a client of the SDK to the server, by
// its standard input and output.
func newAgent(t testing.TB, flags ...string) *agent {
	t.Helper()
	return newAgentOf(t, nil, flags...)
}

// newAgentOf is newAgent for a client that can ask a person.
func newAgentOf(t testing.TB, person func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error), flags ...string) *agent {
	t.Helper()
	testenv.Need(t, "userns")
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, person: person, base: base, ws: base + "/ws", home: base + "/home", beside: base + "/beside", stderr: &syncBuffer{}, progressed: make(chan struct{}, 1)}
	for _, d := range []string{a.ws + "/sub", a.home + "/.ssh/inner", a.beside, base + "/tmp"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	a.put(a.ws+"/hello.txt", "one\ntwo\nthree\n")
	a.put(a.home+"/.ssh/id_test", "PRIVATE")
	a.put(a.beside+"/data", "beside\n")
	must(t, os.Symlink("/etc", a.home+"/.ssh/link"))
	self, err := os.Executable()
	must(t, err)
	a.connect(self, append([]string{"--workspace", a.ws, "--ro", a.home, "--ro", a.beside}, flags...)...)
	return a
}

func (a *agent) put(path, content string) {
	a.t.Helper()
	must(a.t, os.WriteFile(path, []byte(content), 0o644))
}

func (a *agent) connect(program string, args ...string) {
	a.t.Helper()
	a.cmd = exec.Command(program, args...)
	a.cmd.Env = []string{asServer + "=1", "HOME=" + a.home, "TMPDIR=" + a.base + "/tmp", "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "TEST_SECRET=hunter2", "SHOWN=" + a.beside}
	a.cmd.Dir, a.cmd.Stderr = a.ws, a.stderr
	in, err := a.cmd.StdinPipe()
	must(a.t, err)
	out, err := a.cmd.StdoutPipe()
	must(a.t, err)
	leave := func() error { return errors.Join(in.Close(), out.Close()) }
	cmd, ended := a.cmd, make(chan error, 1)
	a.leave, a.ended = leave, ended
	must(a.t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test agent", Version: "1"}, &mcp.ClientOptions{ProgressNotificationHandler: a.heard, ElicitationHandler: a.person})
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		a.t.Fatalf("%v: %s", err, a.stderr)
	}
	a.ClientSession = session
	a.t.Cleanup(func() {
		_ = leave() // the test may have ended the server
		<-ended
		if a.t.Failed() {
			a.t.Logf("the server said: %s", a.stderr)
		}
	})
}

func (a *agent) heard(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	a.mu.Lock()
	a.progress = append(a.progress, r.Params.Message)
	a.mu.Unlock()
	select {
	case a.progressed <- struct{}{}:
	default:
	}
}

// heardText is all progress that was reported while calls ran.
func (a *agent) heardText() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.progress, "")
}

type args = map[string]any

// An answer is what a tool returned.
type answer struct {
	Text    string
	Failed  bool
	Data    map[string]any
	Problem error
}

// use calls a tool.
func (a *agent) use(name string, in args) answer {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	return a.useIn(ctx, name, in)
}

func (a *agent) useIn(ctx context.Context, name string, in args) answer {
	p := &mcp.CallToolParams{Name: name, Arguments: in}
	p.SetProgressToken(name)
	r, err := a.CallTool(ctx, p)
	if err != nil {
		return answer{Failed: true, Problem: err, Text: err.Error()}
	}
	got := answer{Failed: r.IsError}
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			got.Text += text.Text
		}
	}
	if r.StructuredContent != nil {
		b, err := json.Marshal(r.StructuredContent)
		if err == nil {
			err = json.Unmarshal(b, &got.Data)
		}
		if err != nil {
			a.t.Errorf("%s: structured content: %v", name, err)
		}
	}
	return got
}

// works calls a tool that has to succeed.
func (a *agent) works(name string, in args) answer {
	a.t.Helper()
	got := a.use(name, in)
	if got.Failed {
		a.t.Fatalf("%s %v: %s", name, in, got.Text)
	}
	return got
}

// fails calls a tool that has to refuse, and say so with these words.
func (a *agent) fails(name string, in args, words ...string) answer {
	a.t.Helper()
	got := a.use(name, in)
	if !got.Failed || got.Problem != nil {
		a.t.Errorf("%s %.200v: not refused as a tool does: %.500s (%v)", name, in, got.Text, got.Problem)
	}
	contains(a.t, got.Text, words...)
	return got
}

// shell runs a script that need not succeed.
func (a *agent) shell(script string) answer {
	a.t.Helper()
	return a.works("run_command", args{"shell": script})
}

func contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in: %.1000s", w, text)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decide waits for a request at the agent's desk and answers it, as cloche
// approve does.
func (a *agent) decide(d grant.Decision) (grant.Request, *grant.Grant) {
	a.t.Helper()
	desk, r := a.waiting()
	g, err := desk.Decide(r.ID, d)
	if err != nil {
		a.t.Error(err)
	}
	return r, g
}

// waiting is the first request that waits at the agent's desk.
func (a *agent) waiting() (*desksocket.Desk, grant.Request) {
	a.t.Helper()
	var d *desksocket.Desk
	testenv.Eventually(a.t, "a request at the desk", func() bool {
		d = a.desk()
		return d != nil && len(d.Requests) > 0
	})
	return d, d.Requests[0]
}

// desk is the desk of the agent's server, nil if there is none.
func (a *agent) desk() *desksocket.Desk {
	a.t.Helper()
	desks, err := desksocket.Find()
	must(a.t, err)
	for i := range desks {
		if desks[i].Info.Workspace == a.ws {
			return &desks[i]
		}
	}
	return nil
}

// auditLog is the whole audit log.
func (a *agent) auditLog() string {
	a.t.Helper()
	files, err := filepath.Glob(a.home + "/.local/state/cloche/audit/*")
	must(a.t, err)
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(a.t, err)
		all.Write(text)
	}
	return all.String()
}
