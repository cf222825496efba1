package examples_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// build makes all programs, once, and returns their folder.
func build(t *testing.T) string {
	t.Helper()
	testenv.Need(t, "go", "userns", "sh")
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "cloche-examples-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", built.dir+"/", "./...")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = errors.New(err.Error() + "\n" + string(out))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// A place is where a program is run: a home folder, and folders in it.
type place struct {
	t    *testing.T
	base string
	env  []string
}

// newPlace makes folders below a temporary one: home, and those named.
func newPlace(t *testing.T, base string, folders ...string) *place {
	t.Helper()
	p := &place{t: t, base: base}
	for _, dir := range append(folders, "home", "data") {
		must(t, os.MkdirAll(p.path(dir), 0o755))
	}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.path("home"), "XDG_DATA_HOME=" + p.path("data"), "LANG=C.UTF-8"}
	return p
}

// homeDir is a temporary folder that no policy takes for one: not below /tmp.
func homeDir(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	must(t, err)
	dir, err := os.MkdirTemp(home, "cloche-example-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *place) path(name string) string { return filepath.Join(p.base, name) }

// content is the text of a file on the host, "" if there is none.
func (p *place) content(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *place) write(name, text string) {
	p.t.Helper()
	must(p.t, os.WriteFile(p.path(name), []byte(text), 0o644))
}

// run runs a program in the place and returns its output and its exit code.
func (p *place) run(dir, stdin, program string, args ...string) (string, int) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(build(p.t), program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = p.path(dir), p.env, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLines(t *testing.T, out string, want ...string) {
	t.Helper()
	lines := strings.Split(out, "\n")
	for _, w := range want {
		if !slices.Contains(lines, w) {
			t.Errorf("there is no line %q in:\n%s", w, out)
		}
	}
}

// F3 F4 F7 F9 F13: an editor's document is written beside it, overrides the user's
// policy in its front matter, and tool calls are approved because of the sandbox.
func TestFlemma(t *testing.T) {
	p := newPlace(t, homeDir(t), "project", "chats", "other")
	p.write("chats/plain.chat", "Hello\n")
	const script = "echo a > in; echo b > ../chats/beside; echo c > ../other/x; echo d >> ../chats/plain.chat; cat /proc/net/dev | grep -c :"
	out, _ := p.run("project", "", "flemma", "-document", "../chats/plain.chat", "bash", script)
	if !strings.Contains(out, "bash: approve by sandbox") || !strings.Contains(out, "confined true") {
		t.Error(out)
	}
	if p.content("project/in") != "a\n" || p.content("chats/beside") != "b\n" {
		t.Errorf("the working folder and the document's are writable: %s", out)
	}
	if p.content("other/x") != "" {
		t.Error("a folder that is not listed was written")
	}
	if p.content("chats/plain.chat") != "Hello\n" {
		t.Error("a command rewrote the document that its policy comes from")
	}

	p.write("chats/strict.chat", "```cloche\nsandbox: true\nnetwork: false\npaths:\n  read: [urn:cloche:document]\n```\n```tools\napprove: [write]\n```\nHello\n")
	out, _ = p.run("project", "", "flemma", "-document", "../chats/strict.chat", "bash", "echo x > ../chats/again; grep -c : /proc/net/dev")
	if p.content("chats/again") != "" || !strings.Contains(out, "\n1\n") {
		t.Errorf("the override is not in force: %s", out)
	}
	if out, code := p.run("project", "", "flemma", "-document", "../chats/strict.chat", "write", "note", "text"); code != 0 || p.content("project/note") != "text\n" {
		t.Errorf("write: %s", out)
	}
	if out, code := p.run("project", "", "flemma", "-document", "../chats/strict.chat", "write", "../other/note", "text"); code == 0 || p.content("other/note") != "" {
		t.Errorf("write outside: %s", out)
	}
}

// F7 F9: what the document or the user decides comes before the sandbox.
func TestFlemmaApproval(t *testing.T) {
	p := newPlace(t, t.TempDir(), "project")
	p.write("project/off.chat", "```cloche\nsandbox: false\n```\n")
	p.write("project/deny.chat", "```tools\ndeny: [bash]\n```\n")
	p.write("project/bad.chat", "\n```cloche\nnetworks: false\n```\n")
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"off", []string{"-document", "off.chat", "bash", "true"}, "bash: ask by "},
		{"off status", []string{"-document", "off.chat", "status"}, "sandbox: not in force: cloche: the command runs without a sandbox: the policy says enabled: false (off.chat:2)"},
		{"deny", []string{"-document", "deny.chat", "bash", "true"}, "bash: deny by document"},
		{"opted out", []string{"-no-auto-approve-sandboxed", "bash", "true"}, "bash: ask by "},
		{"no sandbox is enough for write", []string{"write", "x", "y"}, "write: ask by "},
		{"status", []string{"status"}, "sandbox: in force, backend native"},
		{"mistake", []string{"-document", "bad.chat", "status"}, `bad.chat:3:1: networks: unknown key; did you mean "network"?`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if out, _ := p.run("project", "", "flemma", test.args...); !strings.Contains(out, test.want) {
				t.Errorf("%q is not in %s", test.want, out)
			}
		})
	}
}

// C1 C2 C3 C4: a plugin that was prepared as an exec.Cmd has a loopback, the socket
// it was granted, its work folder, and nothing else of the host's.
func TestCodefly(t *testing.T) {
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, "userns")
			if backend == "bwrap" {
				testenv.Need(t, "bwrap")
			}
			p := newPlace(t, t.TempDir(), "work", "secret")
			out, code := p.run(".", "", "codefly", "-work", "work", "-backend", backend)
			if backend == "bwrap" && os.Getuid() == 0 {
				if code == 0 || !strings.Contains(out, "device nodes") {
					t.Errorf("a gap is no reason not to run: %d, %s", code, out)
				}
				return
			}
			if code != 0 {
				t.Fatal(out)
			}
			wantLines(t, out, "granted socket: the host's agent", "loopback 127.0.0.1:0: works", "loopback [::1]:0: works",
				"host's loopback: refused", "beside the work: 0 others", "write the work: done", "write /etc: refused", "host to plugin: the plugin")
			if p.content("work/state") != "kept\n" {
				t.Error("the work folder was not written")
			}
		})
	}
	// The control: without a sandbox the plugin reaches what it should not.
	p := newPlace(t, t.TempDir(), "work", "secret")
	out, _ := p.run(".", "", "codefly", "-work", "work", "-backend", "none")
	wantLines(t, out, "host's loopback: the host's loopback", "beside the work: 3 others")
}
