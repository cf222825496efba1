package examples_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// claiAnswer is a line that the program answers a call with.
type claiAnswer struct {
	Error    string
	Text     string
	ExitCode *int `json:"exit_code"`
	Stdout   string
	Granted  string
	Notices  []struct{ Kind, Text string }
}

// clai runs the agent's calls, with a person who decides by the given lines.
func (p *place) clai(decisions string, live bool, calls ...string) []claiAnswer {
	p.t.Helper()
	p.write("person", decisions)
	out, code := p.run(".", strings.Join(calls, "\n")+"\n", "clai", "-workspace", p.path("ws"), "-data", p.path("store"), "-person", p.path("person"),
		fmt.Sprintf("-live=%v", live))
	if code != 0 {
		p.t.Fatal(out)
	}
	var answers []claiAnswer
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			// What the person is asked comes first on the line of the answer.
			if _, line, _ = strings.Cut(line, "deny? "); !strings.HasPrefix(line, "{") {
				continue
			}
		}
		var a claiAnswer
		must(p.t, json.Unmarshal([]byte(line), &a))
		answers = append(answers, a)
	}
	if len(answers) != len(calls) {
		p.t.Fatalf("%d answers to %d calls:\n%s", len(answers), len(calls), out)
	}
	return answers
}

func bashCall(format string, args ...any) string {
	text, _ := json.Marshal(map[string]string{"tool": "bash_exec", "command": fmt.Sprintf(format, args...)})
	return string(text)
}

func grantCall(path, access string) string {
	text, _ := json.Marshal(map[string]string{"tool": "fs_request_grant", "path": path, "access": access, "reason": "the task needs it"})
	return string(text)
}

// A3 A5 A6 A7 A8 A10: an agent asks for paths; a decision narrows and never widens,
// holds for as long as the person said, and is a notice of the run.
func TestCLAI(t *testing.T) {
	p := newPlace(t, t.TempDir(), "ws", "notes/public")
	p.write("notes/public/a", "public\n")
	p.write("notes/private", "private\n")
	notes := p.path("notes")
	decisions := strings.Join([]string{
		"allow session " + p.base,                 // more than was asked for: refused, asked again
		"allow session write",                     // so is this
		"allow session " + p.path("notes/public"), // less
		"deny",
		"allow once",
		"allow always",
	}, "\n") + "\n"
	got := p.clai(decisions, false,
		bashCall("cat %s/public/a; echo made > here", notes),
		grantCall(notes, "read"),
		bashCall("cat %s/public/a; cat %s/private", notes, notes),
		grantCall(notes+"/public/../public/a", "read"), // covered: nobody is asked
		grantCall(notes, "write"),
		grantCall(notes, "write"),
		bashCall("echo first > %s/new", notes),
		bashCall("echo second > %s/new", notes),
		grantCall(notes, "write"),
		`{"tool": "capabilities"}`,
	)
	if got[0].Stdout != "" || p.content("ws/here") != "made\n" {
		t.Errorf("before a grant: %+v", got[0])
	}
	if want := "read " + p.path("notes/public") + " (session)"; got[1].Granted != want || kind(got[1]) != "path_granted" {
		t.Errorf("narrowed: %+v", got[1])
	}
	if got[2].Stdout != "public\n" {
		t.Errorf("after the grant: %+v", got[2])
	}
	if got[3].Granted == "" || kind(got[3]) != "" {
		t.Errorf("covered: %+v", got[3])
	}
	if !strings.Contains(got[4].Error, "refused by") || kind(got[4]) != "path_grant_denied" {
		t.Errorf("denied: %+v", got[4])
	}
	if text := p.content("notes/new"); text != "first\n" {
		t.Errorf("what was granted once holds for one command; the file has %q", text)
	}
	if !strings.HasSuffix(got[8].Granted, "(always)") || !strings.Contains(got[9].Text, notes) || !strings.Contains(got[9].Text, "fs_request_grant") {
		t.Errorf("always: %+v\n%s", got[8], got[9].Text)
	}
	// A7: it is kept, with who and why, and the next agent has it.
	if kept := p.content("store/grants.json"); !strings.Contains(kept, "the task needs it") || !strings.Contains(kept, "the person at the terminal") {
		t.Errorf("the store has %s", kept)
	}
	p.clai("", false, bashCall("echo later > %s/new", notes))
	if text := p.content("notes/new"); text != "later\n" {
		t.Errorf("the next agent wrote %q", text)
	}
}

// N2 A6: with live grants the very call that was refused waits, and succeeds; the
// next command asks again for what was given once.
func TestCLAILive(t *testing.T) {
	p := newPlace(t, homeDir(t), "ws", "notes")
	p.write("notes/kept", "kept\n")
	notes := p.path("notes")
	got := p.clai("allow once\ndeny\n", true,
		bashCall("echo made > %s/new && cat %s/new", notes, notes),
		bashCall("echo again > %s/new", notes),
		bashCall("cat %s/kept", notes))
	if got[0].Stdout != "made\n" || *got[0].ExitCode != 0 {
		t.Errorf("granted while it waited: %+v", got[0])
	}
	if *got[1].ExitCode == 0 || p.content("notes/new") != "made\n" {
		t.Errorf("denied: %+v, the file has %q", got[1], p.content("notes/new"))
	}
	if *got[2].ExitCode == 0 || got[2].Stdout != "" {
		t.Errorf("a person who is gone has said yes: %+v", got[2])
	}
}

func kind(a claiAnswer) string {
	if len(a.Notices) == 0 {
		return ""
	}
	return a.Notices[0].Kind
}

// A8 A11: where the backend does not work nothing runs, and the notice says why.
// The kernel refuses user namespaces inside one whose limit is 0.
func TestCLAIWithoutSandbox(t *testing.T) {
	testenv.Need(t, "unshare")
	p := newPlace(t, t.TempDir(), "ws")
	p.write("person", "")
	cmd := exec.Command("unshare", "-r", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"`, "sh",
		filepath.Join(build(t), "clai"), "-backend", "native", "-workspace", p.path("ws"), "-data", p.path("store"), "-person", p.path("person"))
	cmd.Env, cmd.Stdin = p.env, strings.NewReader(bashCall("echo x > ran"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"sandbox_unavailable"`) || !strings.Contains(string(out), "max_user_namespaces") || p.content("ws/ran") != "" {
		t.Errorf("%v: %s", err, out)
	}
}

// L1 L2 L3 L4 L5 L7: lmcli's own configuration gives a remapped workspace, binds,
// folders that are kept, and a network that needs no other program.
func TestLmcli(t *testing.T) {
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) { testLmcli(t, backend) })
	}
}

func testLmcli(t *testing.T, backend string) {
	if backend == "bwrap" {
		testenv.Need(t, "bwrap")
	}
	testenv.Need(t, "curl")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)

	p := newPlace(t, t.TempDir(), "ws", "shared", "home/.config/lmcli")
	p.write("shared/f", "shared\n")
	p.write("home/.config/lmcli/config.yaml", "apiKey: none of the tool's business\n")
	p.write("config.yaml", "sandbox:\n  enabled: true\n  networking: user\n  bindDirs: [\""+p.path("shared")+":/shared:ro\"]\n  persistDirs: [~/.cache/tool]\n")
	tool := func(script string) string {
		out, _ := p.run("ws", "", "lmcli", "-backend", backend, "-config", p.path("config.yaml"), "-workspace", p.path("ws"), "-forward", port, "--", "sh", "-c", script)
		return out
	}
	first := tool(`pwd; echo tool=$LMCLI_TOOL; cat /shared/f; echo x > /shared/g; echo made > made; echo 1 >> ~/.cache/tool/n; grep -c localhost /etc/hosts
cat ~/.config/lmcli/config.yaml; curl -s http://127.0.0.1:` + port + `; curl -s -o /dev/null -w 'private %{http_code}\n' http://10.255.255.1/`)
	wantLines(t, first, "/workspace", "tool=1", "shared", "2", "served", "private 403")
	if strings.Contains(first, "apiKey") {
		t.Error("the tool read lmcli's configuration")
	}
	if p.content("ws/made") != "made\n" || p.content("shared/g") != "" {
		t.Errorf("the workspace is written and the bind is not: %s", first)
	}
	wantLines(t, tool("cat ~/.cache/tool/n"), "1")
	if _, err := os.Stat(p.path("home/.cache/tool")); err == nil {
		t.Error("the persisted folder is in the real home")
	}
}

// L3: paths are translated by whole components.
func TestLmcliTranslates(t *testing.T) {
	p := newPlace(t, t.TempDir(), "ws")
	out, code := p.run("ws", "", "lmcli", "-host-path", "/workspace/a/b")
	if want := filepath.Join(p.path("ws"), "a/b") + "\n"; code != 0 || out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if out, code := p.run("ws", "", "lmcli", "-host-path", "/workspace2/a"); code == 0 {
		t.Errorf("/workspace2 is not /workspace: %s", out)
	}
}

type flowReport struct {
	ExitCode int `json:"exit_code"`
	Output   string
	TimedOut bool `json:"timed_out"`
	Layer    string
	Audited  int
}

// W1 W2 W4 W6 W7 W8: a node declares what it needs; the report names what enforced
// it, and the log is verified.
func TestFlow(t *testing.T) {
	p := newPlace(t, homeDir(t), "ws", "in", "log")
	p.write("in/f", "input\n")
	p.env = append(p.env, "DECLARED=yes", "UNDECLARED=no")
	const script = "cat ../in/f; echo x > made; echo $DECLARED/$UNDECLARED; grep -c : /proc/net/dev; ls -A ../log 2>/dev/null | wc -l; echo x > ../in/g"
	for i, test := range []struct{ capabilities, want string }{
		{`{"net": false, "write_paths": ["cwd"], "read_paths": ["` + p.path("in") + `"], "env": {"vars": ["PATH", "DECLARED"]}}`, "input\nyes/\n1\n0\n"},
		{`{"net": false, "write_paths": [], "read_paths": [], "env": "scrubbed"}`, "input\n/\n1\n0\n"},
		{`{"net": false, "env": "inherit"}`, "input\nyes/no\n1\n0\n"},
	} {
		os.Remove(p.path("ws/made"))
		node := fmt.Sprintf(`{"id": "n", "command": "sh", "args": ["-c", %q], "capabilities": %s}`, script, test.capabilities)
		out, code := p.run("ws", node, "flow", "-audit", p.path("log"), "-result", "result")
		if code != 0 {
			t.Fatalf("%s: %s", test.capabilities, out)
		}
		var report flowReport
		must(t, json.Unmarshal([]byte(out), &report))
		if !strings.HasPrefix(report.Output, test.want) || report.Layer != "native" || report.Audited != 2*(i+1) || p.content("in/g") != "" {
			t.Errorf("%s: %+v", test.capabilities, report)
		}
		if p.content("ws/made") != "x\n" || !strings.HasPrefix(p.content("ws/result"), test.want) {
			t.Errorf("%s: the working folder is always writable: %+v", test.capabilities, report)
		}
	}
}

// W6 W7: a node that is out of time is ended and says so; a result stays in the
// workspace.
func TestFlowBounds(t *testing.T) {
	p := newPlace(t, t.TempDir(), "ws", "log")
	out, _ := p.run("ws", `{"id": "n", "command": "sh", "args": ["-c", "echo kept; sleep 1000"], "timeout_seconds": 1}`, "flow", "-audit", p.path("log"))
	var report flowReport
	must(t, json.Unmarshal([]byte(out), &report))
	if !report.TimedOut || report.Output != "kept\n" {
		t.Errorf("%+v", report)
	}
	out, code := p.run("ws", `{"id": "n", "command": "true"}`, "flow", "-audit", p.path("log"), "-result", "../escaped")
	if code == 0 || !strings.Contains(out, "outside") || p.content("escaped") != "" {
		t.Error(out)
	}
	if out, code = p.run("ws", `{"id": "n", "command": "true", "capabilities": {"nett": true}}`, "flow", "-audit", p.path("log")); code == 0 || !strings.Contains(out, `did you mean "net"?`) {
		t.Error(out)
	}
}
