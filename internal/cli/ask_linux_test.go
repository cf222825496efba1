package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A tmux is a terminal with one window.
type tmux struct {
	t   *testing.T
	dir string
}

// newTmux runs a shell line in a terminal.
func newTmux(t *testing.T, s school, line string) *tmux {
	t.Helper()
	dir, err := os.MkdirTemp("", "tm") // the path of its socket is short
	if err != nil {
		t.Fatal(err)
	}
	x := &tmux{t: t, dir: dir}
	t.Cleanup(func() {
		// The context of the test is over by now, and x.command would not run.
		if err := exec.Command("tmux", "-S", dir+"/s", "kill-server").Run(); err != nil {
			t.Logf("tmux: %v; the server may have ended by itself", err)
		}
		os.RemoveAll(dir)
	})
	if out, err := x.command(s, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "40", "sh", "-c", line+"; sleep 600").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	return x
}

func (x *tmux) command(s school, args ...string) *exec.Cmd {
	cmd := s.command(x.t, "tmux", append([]string{"-S", x.dir + "/s"}, args...)...)
	cmd.Env = append(cmd.Env, "TERM=xterm", "TMUX=")
	return cmd
}

func (x *tmux) screen(s school) string {
	out, _ := x.command(s, "capture-pane", "-p").CombinedOutput()
	return string(out)
}

// shows waits until the screen, or what has scrolled off it, has a text.
func (x *tmux) shows(s school, text string) {
	x.t.Helper()
	if !testenv.Becomes(func() bool {
		out, _ := x.command(s, "capture-pane", "-p", "-S", "-").CombinedOutput()
		return strings.Contains(string(out), text)
	}) {
		x.t.Fatalf("the screen never shows %q, but\n%s", text, x.screen(s))
	}
}

func (x *tmux) keys(s school, keys ...string) {
	x.t.Helper()
	if out, err := x.command(s, append([]string{"send-keys"}, keys...)...).CombinedOutput(); err != nil {
		x.t.Fatalf("tmux: %v: %s", err, out)
	}
}

// allow answers the last question on the screen with yes.
func (x *tmux) allow(s school) {
	x.t.Helper()
	x.shows(s, ", ?:")
	x.keys(s, codeOn(x.screen(s)), "Enter")
}

// askBackends are those whose calls can wait.
var askBackends = map[string][]string{"native": {"userns", "landlock"}, "bwrap": {"bwrap", "userns", "landlock"}}

// N2: on a real terminal a compile that needs a folder of the home stops, asks, is
// granted, and finishes. The terminal is then the command's again,
// and a refusal by Ctrl-C ends the question and not the command.
func TestAskOnTerminal(t *testing.T) {
	testenv.AlsoAsUser(t)
	for backend, needs := range askBackends {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, append(needs, "tmux", "gcc")...)
			s := newSchool(t)
			s.sh(t, `mkdir -p ~/.cache/x ~/closed; echo hush >~/closed/key; printf '#include <stdio.h>\nint main(void) { puts("compiled"); }\n' >a.c`)
			x := newTmux(t, s, fmt.Sprintf(`cloche run --ask --backend %s --ro %s --hide %s -- sh -c 'gcc -c a.c -o ~/.cache/x/a.o && gcc ~/.cache/x/a.o -o a && ./a; read line; echo "got $line"; cat ~/closed/key; echo done'; echo "status $?"; stty -a | grep -o -- '[- ]icanon'`, backend, s.root, s.home+"/closed"))
			x.shows(s, "wants to write "+s.home+"/.cache/x")
			x.shows(s, "now for")
			x.allow(s)
			x.shows(s, "granted write")
			x.shows(s, "compiled")
			x.keys(s, "hello", "Enter")
			x.shows(s, "got hello")
			x.shows(s, "wants to read "+s.home+"/closed")
			x.keys(s, "C-c")
			x.shows(s, "refused read")
			x.shows(s, "done")
			x.shows(s, "status 0")
			x.shows(s, " icanon")
			if strings.Contains(x.screen(s), "hush") {
				t.Errorf("the secret came out:\n%s", x.screen(s))
			}
		})
	}
}

// waitingRun is a command that waits for a decision, in the background.
func waitingRun(t *testing.T, s school, more ...string) (cmd *exec.Cmd, out *bytes.Buffer, request grant.Request) {
	t.Helper()
	args := append(append([]string{"run", "--ask", "--ro", s.root}, more...), "--", "sh", "-c", "echo new >~/.cache/x/f && cat ~/.cache/x/f")
	cmd, out = s.command(t, "cloche", args...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a request", func() bool {
		for _, line := range strings.Split(s.cloche(t, "approve", "list", "--json"), "\n") {
			if json.Unmarshal([]byte(line), &request) == nil && strings.HasPrefix(request.Path, s.root) {
				return true
			}
		}
		return false
	})
	return cmd, out, request
}

// A5 A6 N2: from another terminal the call is decided, always; the next run has it
// without a question, and explain says why. Revoked, it is asked for again.
func TestAskApproveAlways(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock")
	s := newSchool(t)
	s.sh(t, "mkdir -p ~/.cache/x")
	cmd, out, r := waitingRun(t, s)
	if r.File != s.home+"/.cache/x/f" || r.Path != s.home+"/.cache/x" || r.Program != "sh" || r.Rule == "" {
		t.Errorf("the request is %+v", r)
	}
	s.cloche(t, "approve", "yes", r.ID, "--scope", "always")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "new\n") {
		t.Fatalf("%v: %s", err, out)
	}
	if again := s.cloche(t, "run", "--ro", s.root, "--", "sh", "-c", "echo more >>~/.cache/x/f; cat ~/.cache/x/f"); again != "new\nmore\n" {
		t.Errorf("the next run printed %q", again)
	}
	if text := s.cloche(t, "explain", "--ro", s.root); !strings.Contains(text, "grant "+r.ID) {
		t.Errorf("explain does not name the grant:\n%s", text)
	}
	if list := s.cloche(t, "grants", "list"); !strings.Contains(list, r.ID) {
		t.Errorf("grants list: %s", list)
	}
	if log := s.cloche(t, "log", "--json"); !strings.Contains(log, `"kind":"grant"`) || !strings.Contains(log, "(always)") {
		t.Errorf("the log has no grant:\n%s", log)
	}
	if log := s.cloche(t, "log"); !strings.Contains(log, "allow write "+r.Path+" for sh") {
		t.Errorf("the log does not say what was granted:\n%s", log)
	}
	s.cloche(t, "grants", "revoke", r.ID)
	cmd, out, r = waitingRun(t, s)
	s.cloche(t, "approve", "no", r.ID)
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "denied") {
		t.Errorf("after no: %v: %s", err, out)
	}
}

// N2: a program decides; one that fails refuses, and one in the workspace is not
// started.
func TestAskHook(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock")
	s := newSchool(t)
	s.sh(t, `mkdir -p ~/.cache/x; cat >~/hook <<'END'
#!/bin/sh
cat >~/request; env >~/environment
echo '{"allow": true, "scope": "once", "note": "fine"}'
END
printf '#!/bin/sh\nexit 1\n' >~/failing; cp ~/hook hook; chmod +x hook ~/hook ~/failing`)
	run := func(hook string) (string, error) {
		cmd := s.command(t, "cloche", "run", "--ask", "--ask-hook", hook, "--ro", s.root, "--", "sh", "-c", "echo new >~/.cache/x/f; cat ~/.cache/x/f; rm ~/.cache/x/f")
		cmd.Env = append(cmd.Env, "LD_PRELOAD=", "PRIVATE=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(s.home + "/hook"); err != nil || out != "new\n" {
		t.Errorf("%v: %s", err, out)
	}
	var r grant.Request
	if text, err := os.ReadFile(s.home + "/request"); err != nil || json.Unmarshal(text, &r) != nil || r.Path != s.home+"/.cache/x" {
		t.Errorf("the hook got %s, %v", text, err)
	}
	if env, _ := os.ReadFile(s.home + "/environment"); strings.Contains(string(env), "PRIVATE") {
		t.Errorf("the hook's environment is %s", env)
	}
	if out, err := run(s.home + "/failing"); err == nil || !strings.Contains(out, "failing") {
		t.Errorf("a hook that fails: %v: %s", err, out)
	}
	for _, bad := range []string{filepath.Join(s.ws, "hook"), "hook", s.home + "/none"} {
		if out, err := run(bad); err == nil || !strings.Contains(out, "--ask-hook") {
			t.Errorf("%s: %v: %s", bad, err, out)
		}
	}
	s.sh(t, `mkdir ~/tools; cp ~/hook ~/tools/hook; ln -s "$PWD" ~/link`)
	for hook, more := range map[string][]string{s.home + "/tools/hook": {"--rw", s.home + "/tools"}, s.ws + "/hook": {"--workspace", s.home + "/link"}} {
		args := append([]string{"run", "--ask", "--ask-hook", hook}, more...)
		if out, err := s.command(t, "cloche", append(args, "--", "true")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "keep") {
			t.Errorf("the command could put a hook at %s: %v: %s", hook, err, out)
		}
	}
}

// N2 F10: killed at any moment, neither cloche nor who decides leaves half a grant,
// nor a process that waits.
func TestAskKilled(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock")
	s := newSchool(t)
	s.sh(t, "mkdir -p ~/.cache/x")
	for i := range 8 {
		cmd, _, r := waitingRun(t, s, "--ask-timeout", fmt.Sprintf("%ds", 1000+i))
		decide := s.command(t, "cloche", "approve", "yes", r.ID, "--scope", "always")
		if err := decide.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 7 * time.Millisecond) // the moment of the kill is what varies
		victim := cmd
		if i%2 == 1 {
			victim = decide
		}
		_ = victim.Process.Kill()
		_ = decide.Wait()
		if victim == decide { // it was decided, or is now
			_ = s.command(t, "cloche", "approve", "no", r.ID).Run()
		}
		_ = cmd.Wait()
		var kept []string
		for _, line := range strings.Split(strings.TrimSpace(s.cloche(t, "grants", "list", "--json")), "\n") {
			var g grant.Grant
			if line != "" && (json.Unmarshal([]byte(line), &g) != nil || g.Path != r.Path || g.By == "") {
				t.Errorf("round %d: there is half a grant: %s", i, line)
			}
			if line != "" {
				kept = append(kept, g.ID)
			}
		}
		if len(kept) > 0 {
			s.cloche(t, append([]string{"grants", "revoke"}, kept...)...)
		}
	}
	testenv.Eventually(t, "no process waits", func() bool { return !strings.Contains(s.exec(t, "ps", "-eo", "args"), s.root) })
}
