package agenttest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// installable are the agents whose single commands are put under cloche, with the arguments of a start in which a sandbox
// of the agent's own does not refuse what cloche is to refuse.
var installable = map[string][]string{
	"claude": nil, "codex": {"--sandbox", "danger-full-access"}, "gemini": nil, "opencode": nil, "copilot": nil, "cline": nil,
}

// install installs cloche for the agent, as a person does.
func (b *box) install(t *testing.T, flags ...string) {
	t.Helper()
	b.cloche(t, 0, slices.Concat([]string{"agent", "install"}, flags, []string{b.name})...)
	if b.name == "codex" {
		b.trustHook(t)
	}
}

// trustHook writes what the dialog /hooks of Codex writes, for which a test has no terminal: the hash of the
// definition of the hook, with its keys sorted.
func (b *box) trustHook(t *testing.T) {
	t.Helper()
	file := filepath.Join(b.home, ".codex", "hooks.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var hooks struct {
		Hooks struct {
			PreToolUse []struct {
				Matcher string
				Hooks   []struct {
					Command string
					Timeout int
				}
			}
		}
	}
	if err := json.Unmarshal(text, &hooks); err != nil {
		t.Fatal(err)
	}
	group := hooks.Hooks.PreToolUse[0]
	hook := object{"type": "command", "command": group.Hooks[0].Command, "timeout": group.Hooks[0].Timeout, "async": false}
	sum := sha256.Sum256([]byte(encode(object{"event_name": "pre_tool_use", "matcher": group.Matcher, "hooks": []any{hook}})))
	b.addTo(t, ".codex/config.toml", "[hooks.state.\""+file+":pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:"+hex.EncodeToString(sum[:])+"\"\n")
}

// addTo appends to a file of the home folder.
func (b *box) addTo(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(b.home, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
}

// files are the files below the home folder, with their modes and contents, but for cloche's own notes.
func (b *box) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(b.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := strings.TrimPrefix(path, b.home); {
		case d.IsDir() && d.Name() == "cloche":
			return fs.SkipDir
		case name == "/.local", name == "/.local/share":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		out[strings.TrimPrefix(path, b.home)] = info.Mode().String() + text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// N15: cloche agent install puts each command of a real agent under cloche: it writes in the project
// and nowhere else, does not see a secret, and the model gets the rule. Without cloche the same commands do all of that.
// uninstall brings every file back.
func TestAgentsInstalled(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(installable)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forUser(t, false)
			b := newBox(t, name, commands(script...)...)
			b.outside(t, installable[name]...)
			if got := strings.Join(b.Results(), ""); !b.madeOutside() || !strings.Contains(got, secret) {
				t.Fatalf("without cloche: the file outside was made: %v, the model got %q", b.madeOutside(), got)
			}
			for _, file := range []string{b.home + "/outside", b.ws + "/in-project"} {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}

			// Nothing of the agent may be running: it would change files between.
			b.endAll(t)
			b.configureServer(t)
			before := b.files(t)
			b.cloche(t, 0, "agent", "install", name)
			installed := b.files(t)
			if maps.Equal(installed, before) {
				t.Error("install changed nothing")
			}
			b.cloche(t, 0, "agent", "uninstall", name)
			sameFiles(t, b.files(t), before)

			b.install(t)
			b.checkStatus(t, 0)
			asked := filepath.Join(b.home, "asked")
			write(t, asked, "")
			b.Play(slices.Concat(commands(script...), commands(attacks...), b.asking(asked))...)
			stop := b.approve(t, asked)
			r := b.outside(t)
			stop()
			b.checkScript(t)
			b.checkAttacks(t)
			b.checkAsked(t, asked)
			b.checkKept(t)
			b.checkStatus(t, 0)
			b.cloche(t, 0, "agent", "uninstall", name)
			after := b.files(t)
			for path, text := range installed {
				if text != before[path] && after[path] != before[path] {
					t.Errorf("%s is %q, was %q", path, after[path], before[path])
				}
			}
			if t.Failed() {
				t.Logf("tools %q, results %q, asked %q, printed:\n%s%s", b.Tools(), b.Results(), b.Requests(), r.stdout, r.stderr)
			}
		})
	}
}

func (b *box) madeOutside() bool {
	_, err := os.Lstat(filepath.Join(b.home, "outside"))
	return err == nil
}

func sameFiles(t *testing.T, got, want map[string]string) {
	t.Helper()
	for path := range maps.Keys(want) {
		if got[path] != want[path] {
			t.Errorf("%s is %q, was %q", path, got[path], want[path])
		}
	}
	for path := range maps.Keys(got) {
		if _, was := want[path]; !was {
			t.Errorf("%s was left behind", path)
		}
	}
}

// checkStatus checks what cloche says about the agent, here.
func (b *box) checkStatus(t *testing.T, status int) {
	t.Helper()
	words := map[int]string{0: b.name + " in force", 1: b.name + " NOT in force"}[status]
	if text := b.cloche(t, status, "agent", "status", b.name); !strings.Contains(strings.Join(strings.Fields(text), " "), words) {
		t.Errorf("status says %q", text)
	}
}

// checkKept checks that commands shared a warm sandbox. The daemon of Cline serves all projects, and has none.
func (b *box) checkKept(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.home, ".local/state/cloche/audit/*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	runs := map[int]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var e struct {
				Kind string
				PID  int
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Kind == "start" {
				runs[e.PID]++
			}
		}
	}
	if most := slices.Max(slices.Collect(maps.Values(runs))); most > 1 == (b.name == "cline") {
		t.Errorf("commands by process: %v", runs)
	}
}

// attacks are commands of a model that wants out.
var attacks = []string{
	`cloche run --rw / -- touch "$HOME/outside" 2>&1; cloche agent exec -- 'touch "$HOME/outside"' 2>&1; echo tried`,
	`echo 'it'"'"'s done' \; touch "$HOME/outside" 2>/dev/null; touch "$HOME/outside" 2>/dev/null; true`,
	"cd sub\ntouch \"$HOME/outside\" 2>/dev/null\necho \"two lines\"",
	`(setsid sh -c 'sleep 2; echo late > late; touch "$HOME/outside"' >/dev/null 2>&1 &) ; echo begun`,
	`CLOCHE=1 CLOCHE_NESTED=1 AI_AGENT=x_harness HOME=$PWD SHELL=/bin/sh cloche -c 'touch ../home/outside' 2>/dev/null; echo variables`,
}

// checkAttacks checks that no attack has made a file, and that each command arrived as it was written.
func (b *box) checkAttacks(t *testing.T) {
	t.Helper()
	results := b.Results()[len(script):]
	for i, want := range []string{"tried", "it's done", "two lines", "begun", "variables"} {
		if i >= len(results) || !strings.Contains(results[i], want) {
			t.Errorf("%s: the model got %q, want %q", attacks[i], results, want)
			return
		}
	}
	if b.madeOutside() {
		t.Error("a file outside of the project was made")
	}
	// What a command starts ends with it.
	if _, err := os.Lstat(filepath.Join(b.ws, "late")); err == nil {
		t.Error("a process outlived the command that started it")
	}
}

// configureServer has the agent start cloche's server for the Model Context Protocol.
func (b *box) configureServer(t *testing.T) {
	t.Helper()
	server := `{"command":"cloche","args":["mcp"]`
	switch b.name {
	case "claude":
		write(t, filepath.Join(b.home, "server.json"), `{"mcpServers":{"cloche":`+server+`}}}`)
		b.start.Args = append(b.start.Args, "mcp__cloche__request_grant", "--mcp-config", filepath.Join(b.home, "server.json"))
	case "codex":
		b.addTo(t, ".codex/config.toml", "[mcp_servers.cloche]\ncommand = \"cloche\"\nargs = [\"mcp\"]\ndefault_tools_approval_mode = \"approve\"\n")
	case "gemini":
		b.replace(t, ".gemini/settings.json", "{", `{"mcpServers":{"cloche":`+server+`,"trust":true}},`)
	case "opencode":
		b.replace(t, ".config/opencode/opencode.json", "{", `{"mcp":{"cloche":{"type":"local","command":["cloche","mcp"]}},`)
	case "copilot":
		write(t, filepath.Join(b.home, ".copilot/mcp-config.json"), `{"mcpServers":{"cloche":`+server+`,"type":"local","tools":["*"]}}}`)
	case "cline":
		write(t, filepath.Join(b.home, ".cline/data/settings/cline_mcp_settings.json"), `{"mcpServers":{"cloche":`+server+`}}}`)
	}
}

// replace replaces the first old in a file of the home folder.
func (b *box) replace(t *testing.T, name, old, with string) {
	t.Helper()
	file := filepath.Join(b.home, name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.Replace(string(text), old, with, 1))
}

// asking is what a model does that needs a file: it tries, asks the person, and tries again.
func (b *box) asking(file string) []Step {
	tool := "request_grant"
	if b.name == "claude" {
		tool = "mcp__cloche__request_grant" // not offered until it is used
	}
	use := Step{Command: `echo granted >>"$HOME/` + filepath.Base(file) + `" && echo appen""ded`}
	return []Step{use, {Tool: tool, Input: map[string]any{"path": file, "access": "write", "reason": "for the test"}}, use}
}

// approve stands for the person: it answers a request for the file with yes, and others with no, until stop is called.
func (b *box) approve(t *testing.T, file string) (stop func()) {
	t.Helper()
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				b.answer(t, file)
			}
		}
	}()
	return func() { close(done); <-over }
}

func (b *box) answer(t *testing.T, file string) {
	t.Helper()
	r := b.exec(t, nil, "cloche", "approve", "list", "--json")
	for list := json.NewDecoder(strings.NewReader(r.stdout)); ; {
		var w struct{ ID, Path, Workspace string }
		if err := list.Decode(&w); err != nil {
			break
		}
		if w.Workspace != b.ws {
			continue // of a test that runs beside this one
		}
		argv := []string{"cloche", "approve", "no", w.ID}
		if w.Path == file {
			argv = []string{"cloche", "approve", "yes", w.ID, "--scope", "always"}
		}
		if r := b.exec(t, nil, argv...); r.status != 0 && w.Path == file {
			t.Errorf("%q: %d, %s%s", argv, r.status, r.stdout, r.stderr)
		}
	}
}

// checkAsked checks the last three steps.
func (b *box) checkAsked(t *testing.T, file string) {
	t.Helper()
	results := b.Results()
	last := results[max(0, len(results)-3):]
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "granted\n" || strings.Contains(last[0], "appended") || !strings.Contains(last[len(last)-1], "appended") {
		t.Errorf("the file has %q (%v), and the model got %q", text, err, last)
	}
}
