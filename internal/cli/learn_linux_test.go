package cli

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A pupil is a command whose needs are learned: setup makes its project outside of
// the sandbox, script is the command, and the policy has to have the rules.
type pupil struct {
	tool, setup, script string
	rules               []string
	flags               []string
}

// pupils keep what they make at home, as tools do that nobody has told better.
var pupils = []pupil{
	{
		tool:   "go",
		setup:  `printf 'module m\n\ngo 1.20\n' > go.mod; printf 'package m\n\nconst Seven = 7\n' > m.go`,
		script: `GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod go build ./...`,
		rules:  []string{"~/.cache/go-build"},
	},
	{
		tool:   "node",
		setup:  `echo '{"name":"app"}' > package.json`,
		script: `node -e 'const fs = require("fs"), os = require("os"); const d = os.homedir() + "/.npm/_cacache/content-v2/aa"; fs.mkdirSync(d, {recursive: true}); fs.writeFileSync(d + "/x", "7"); fs.mkdirSync("node_modules/dep", {recursive: true}); fs.copyFileSync(d + "/x", "node_modules/dep/x")'`,
		rules:  []string{"~/.npm"},
		flags:  []string{"--yes"}, // ~/.npm itself is not there yet, and no cache
	},
	{
		tool:   "/usr/bin/python3",
		script: `/usr/bin/python3 -c 'import os, pathlib; d = pathlib.Path.home() / ".cache/pip/http/a"; d.mkdir(parents=True, exist_ok=True); (d / "x").write_text("7"); pathlib.Path("out").write_text("7")'`,
		rules:  []string{"~/.cache/pip"},
	},
	{
		tool:   "git",
		setup:  `git init -q --bare ../upstream.git`,
		script: `git init -q . && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x && git push -q ../upstream.git HEAD:refs/heads/main && git ls-remote ../upstream.git | grep -q main`,
		rules:  []string{"/upstream.git/objects", "/upstream.git/refs/heads"},
		flags:  []string{"--yes"},
	},
}

// N6: what real tools need is learned, and a run under the written policy passes.
func TestLearnTools(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	testenv.AlsoAsUser(t)
	for _, p := range pupils {
		t.Run(filepath.Base(p.tool), func(t *testing.T) {
			testenv.Need(t, p.tool)
			t.Parallel()
			s := newSchool(t)
			s.sh(t, p.setup)
			args := append([]string{"learn", "--ro", s.root}, p.flags...)
			out := s.cloche(t, append(args, "--", "sh", "-c", p.script)...)
			text, err := os.ReadFile(filepath.Join(s.ws, ".cloche.yaml"))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, rule := range p.rules {
				if !strings.Contains(string(text), rule) {
					t.Errorf("no rule for %s:\n%s\n%s", rule, text, out)
				}
			}
			s.cloche(t, "policy", "trust")
			s.cloche(t, "run", "--", "sh", "-c", p.script)
		})
	}
}

// A school is a home and a workspace beside each other.
type school struct {
	root, home, ws string
}

func newSchool(t *testing.T) school {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := school{root: root, home: filepath.Join(root, "home"), ws: filepath.Join(root, "ws")}
	for _, dir := range []string{s.home, s.ws} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s school) cloche(t *testing.T, args ...string) string {
	t.Helper()
	return s.exec(t, "cloche", args...)
}

func (s school) sh(t *testing.T, script string) {
	t.Helper()
	s.exec(t, "sh", "-euc", script)
}

func (s school) exec(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := s.command(t, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out.String())
	}
	return out.String()
}

func (s school) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = s.ws
	cmd.Env = append(os.Environ(), "HOME="+s.home, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_STATE_HOME=", "XDG_CACHE_HOME=", "GOCACHE=", "GOPATH=", "GOMODCACHE=", "GOFLAGS=")
	return cmd
}

// N6: hosts are learned by name, and nothing is reached for that. An address that
// is not public is left out.
func TestLearnHosts(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "curl")
	s := newSchool(t)
	out := s.cloche(t, "learn", "--output", "-", "--", "sh", "-c", "curl -s http://learned.example/; curl -s -m 5 http://10.1.2.3:81/; true")
	for _, line := range []string{`- "learned.example:80"  # curl`, "#   connect 10.1.2.3:81: "} {
		if !strings.Contains(out, line) {
			t.Errorf("no %s in\n%s", line, out)
		}
	}
	// F12: nobody decided anything, and the log does not say so.
	if log := s.cloche(t, "log", "--json"); !strings.Contains(log, `"kind":"start"`) || !strings.Contains(log, "learned.example") || strings.Contains(log, `"kind":"grant"`) {
		t.Errorf("the log has\n%s", log)
	}
}

// N6: at a terminal each thing is asked about, and only a yes is one.
func TestLearnAsks(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	s := newSchool(t)
	s.sh(t, "mkdir ../yes ../no")
	cmd := s.command(t, "cloche", "learn", "--ro", s.root, "--", "sh", "-c", "echo x > ../yes/x; echo x > ../no/x; true")
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	said := answer(tty, map[string]string{"/yes": "#\r", "/no": "yes\r"})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	text, err := os.ReadFile(filepath.Join(s.ws, ".cloche.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "version:")
	rules, left, _ := strings.Cut(body, "# Left out")
	if !strings.Contains(rules, "/yes") || strings.Contains(rules, "/no") || !strings.Contains(left, "/no") {
		t.Errorf("yes is not in the rules, or no is:\n%s\n%s", text, said)
	}
	if _, err := os.Stat(filepath.Join(s.root, "yes/x")); err != nil {
		t.Errorf("what was agreed to was not tried: %v", err)
	}
}

// answer answers each question by what it is about, and returns all that was said.
func answer(tty io.ReadWriter, answers map[string]string) string {
	var all, question strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := tty.Read(buf)
		if err != nil { // the terminal is gone with the command
			return all.String()
		}
		all.Write(buf[:n])
		question.Write(buf[:n])
		about, _, asked := strings.Cut(question.String(), "allow it?")
		code := codeOn(question.String())
		if !asked || !strings.HasSuffix(question.String(), "for no: ") {
			continue
		}
		question.Reset()
		about = about[strings.LastIndex(strings.TrimSpace(about), "\n")+1:]
		for subject, reply := range answers {
			if strings.Contains(about, subject) {
				_, _ = io.WriteString(tty, strings.ReplaceAll(reply, "#", code))
			}
		}
	}
}
