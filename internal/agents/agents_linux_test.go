package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/testenv"
)

const testCloche = "/opt/my tools/cloche"

func testPlaces(t *testing.T, scope Scope) *Places {
	t.Helper()
	root := t.TempDir()
	p := &Places{Scope: scope, Home: filepath.Join(root, "home"), Project: filepath.Join(root, "project"), Cloche: testCloche, Getenv: func(string) string { return "" }}
	for _, dir := range []string{p.Home, p.Project} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func installable() []*Agent {
	return slices.DeleteFunc(All(), func(a *Agent) bool { return a.Instead != "" })
}

// tree lists the files below the home and the project, with their modes.
func tree(t *testing.T, p *Places) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, root := range []string{p.Home, p.Project} {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
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
			out[path] = info.Mode().String() + "\n" + text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func sameTree(t *testing.T, got, want map[string]string) {
	t.Helper()
	for path, text := range want {
		if got[path] != text {
			t.Errorf("%s is\n%q, was\n%q", path, got[path], text)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%s was left behind", path)
		}
	}
}

func install(t *testing.T, s *Store, a *Agent, p *Places) []Change {
	t.Helper()
	changes, err := a.Changes(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Install(a, p, changes); err != nil {
		t.Fatal(err)
	}
	return changes
}

// existing are files that agents may have before.
var existing = map[string]string{
	".claude/settings.json":             "{\n    \"model\": \"opus\",\n    \"env\": {\"A\": \"1\"},\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\"matcher\": \"Edit\", \"hooks\": []}\n        ]\n    }\n}",
	".codex/hooks.json":                 "{\"hooks\":{\"PreToolUse\":[{\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"other\"}]}]}}\n",
	".gemini/settings.json":             "// mine\n{\n\t\"theme\": \"x\", /* keep */\n\t\"hooks\": {\n\t\t// none yet\n\t},\n}\n",
	".config/opencode/opencode.json":    "{ \"shell\": \"/bin/zsh\", \"model\": \"m\" }\n",
	".cursor/hooks.json":                "{\r\n  \"version\": 1,\r\n  \"hooks\": {}\r\n}\r\n",
	".config/opencode/unrelated-folder": "x",
}

// N15: what install writes is as in the golden files, from nothing and beside what was
// there; uninstall leaves every file and folder as it was, byte for byte.
func TestInstallAndBack(t *testing.T) {
	for _, a := range installable() {
		for _, kind := range []string{"empty", "existing"} {
			t.Run(a.Name+"/"+kind, func(t *testing.T) {
				p := testPlaces(t, User)
				if kind == "existing" {
					for name, text := range existing {
						write(t, filepath.Join(p.Home, name), text, 0o640)
					}
				}
				before := tree(t, p)
				s := Open(filepath.Join(t.TempDir(), "data"))
				var got strings.Builder
				for _, c := range install(t, s, a, p) {
					info, err := os.Stat(c.File)
					if err != nil {
						t.Fatal(err)
					}
					data, err := os.ReadFile(c.File)
					if err != nil {
						t.Fatal(err)
					}
					rel, _ := filepath.Rel(p.Home, c.File)
					got.WriteString("# " + info.Mode().String() + " " + rel + "\n" + strings.ReplaceAll(string(data), p.Home, "HOME") + "\n")
				}
				goldentest.Compare(t, filepath.Join("testdata", a.Name+"-"+kind+".txt"), got.String())
				records, err := s.Installed(a.Name, p.Project)
				if err != nil || len(records) == 0 {
					t.Fatalf("installed: %v, %v", records, err)
				}
				for i := range records {
					if err := records[i].check(); err != nil {
						t.Errorf("%s: %v", records[i].File, err)
					}
				}
				if again, err := a.Changes(p); err != nil || slices.ContainsFunc(again, func(c Change) bool { return !c.Done }) {
					t.Errorf("a second install would change something (%v)", err)
				}
				if _, err := s.Uninstall(a.Name, User, p.Project); err != nil {
					t.Fatal(err)
				}
				sameTree(t, tree(t, p), before)
			})
		}
	}
}

// N15: what cloche agent run adds to each agent, and what install says where it cannot work, is as in the golden file.
func TestAgents(t *testing.T) {
	var got strings.Builder
	for _, a := range All() {
		got.WriteString(a.Name + " (" + a.Title + ")\n")
		for _, line := range []string{
			"program  " + strings.Join(a.Programs, " or "), "args     " + strings.Join(a.Args, " "), "env      " + strings.Join(a.Env, " "), "off      " + a.Inner,
			"install  " + a.Instead, "note     " + a.Note, "user     " + a.UserNote,
		} {
			if word, rest, _ := strings.Cut(line, " "); strings.TrimSpace(rest) != "" {
				got.WriteString("  " + word + " " + rest + "\n")
			}
		}
	}
	goldentest.Compare(t, filepath.Join("testdata", "agents.txt"), got.String())
}

// N15: from a file that was changed since, exactly the entries of cloche are removed.
func TestUninstallKeepsOtherChanges(t *testing.T) {
	for _, a := range installable() {
		t.Run(a.Name, func(t *testing.T) {
			p := testPlaces(t, Project)
			s := Open(filepath.Join(t.TempDir(), "data"))
			changes := install(t, s, a, p)
			for _, c := range changes {
				if c.Edits == nil {
					continue
				}
				text := strings.Replace(string(c.New), "{", "{\n  \"mine\": [1, {\"a\": \"}\"}],", 1)
				write(t, c.File, text, 0o644)
			}
			if _, err := s.Uninstall(a.Name, Project, p.Project); err != nil {
				t.Fatal(err)
			}
			for _, c := range changes {
				data, err := os.ReadFile(c.File)
				if c.Edits == nil {
					if !errors.Is(err, os.ErrNotExist) {
						t.Errorf("%s is still there (%v)", c.File, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(data), "cloche") || strings.Contains(string(data), "hooks") || compact(data, false) != `{"mine":[1,{"a":"}"}]}` && compact(data, false) != `{"mine":[1,{"a":"}"}],"version":1}` {
					t.Errorf("%s is left as %s", c.File, data)
				}
			}
		})
	}
}

// N15: settings that are not valid, or not of the expected form, stay untouched, and the error names the line.
func TestBadSettings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{\n  \"a\": 1,\n  \"b\": }\n", "line 3: is not valid JSON"},
		{"{\n  // a comment\n  \"a\": 1\n}\n", "line 2: is not valid JSON"},
		{"[]", "is not a JSON object"},
		{"", "is empty"},
		{"{\"hooks\":\n[]}", `line 2: "hooks" is not what cloche expects`},
		{"{\"hooks\":{\"PreToolUse\":{}}}", `"hooks.PreToolUse" is not a list`},
		{"{\"env\":7}", `"env" is not what cloche expects`},
		{"\xff\xfe{", "is not valid JSON"},
		{strings.Repeat("[", 20000), "is not valid JSON"},
	} {
		p := testPlaces(t, User)
		file := filepath.Join(p.Home, ".claude", "settings.json")
		write(t, file, c.text, 0o600)
		before := tree(t, p)
		a, err := Find("claude")
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Changes(p)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%.40q: error %v, want %q", c.text, err, c.want)
		}
		sameTree(t, tree(t, p), before)
	}
}

// N15: a project's links are not followed, and a file of the same name that is not cloche's is not replaced.
func TestInstallInHostileProject(t *testing.T) {
	p := testPlaces(t, Project)
	victim := filepath.Join(p.Home, "settings.local.json")
	write(t, victim, "{}", 0o600)
	if err := os.Symlink(p.Home, filepath.Join(p.Project, ".claude")); err != nil {
		t.Fatal(err)
	}
	claude, _ := Find("claude")
	if _, err := claude.Changes(p); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link out of the project: %v", err)
	}
	cline, _ := Find("cline")
	write(t, filepath.Join(p.Project, ".clinerules/hooks/PreToolUse"), "#!/bin/sh\n", 0o755)
	if _, err := cline.Changes(p); err == nil || !strings.Contains(err.Error(), "another file of this name") {
		t.Errorf("another hook: %v", err)
	}
}

// N15: status names each way in which what was installed is not in force.
func TestProblems(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		agent, file, text, want string
	}{
		{"claude", "", "", ""},
		{"claude", "home/.claude/settings.json", `{}`, "env.CLAUDE_CODE_SHELL_PREFIX is not as cloche wrote it"},
		{"claude", "home/.claude/settings.json", `{`, "is not valid JSON"},
		{"claude", "home/.claude/cloche-prefix", "#!/bin/sh\nexec bash -c \"$1\"\n", "was changed since"},
		{"claude", "project/.claude/settings.json", `{"disableAllHooks":true}`, "sets disableAllHooks to true"},
		{"claude", "project/.claude/settings.local.json", `{"env":{"CLAUDE_CODE_SHELL_PREFIX":""}}`, `sets env.CLAUDE_CODE_SHELL_PREFIX to ""`},
		{"claude", "project/.claude/settings.json", `{"disableAllHooks":false}`, ""},
		{"codex", "", "", "the hook is not trusted"},
		{"codex", "project/.codex/config.toml", "[features]\nhooks = false\n", "is the project's own"},
		{"codex", "project/.codex/config.toml", "[features]\n\"ho\\u006fks\" = false\n", "is the project's own"},
		{"codex", "project/sub/dir/.codex/config.toml", "[features]\nhooks = false\n", "sub/dir/.codex/config.toml is the project's own"},
		{"claude", "project/sub/.claude/settings.json", `{"disableAllHooks":true}`, "sets disableAllHooks to true"},
		{"claude", "project/beside/.claude/settings.json", `{"disableAllHooks":true}`, ""},
		{"gemini", "project/.gemini/settings.json", `{"hooks":{"BeforeTool":[{}]}}`, "sets hooks.BeforeTool to [{}]"},
		{"gemini", "project/.gemini/settings.json", "{\"hooksConfig\":{\"enabled\":false}, // no\n}", "sets hooksConfig.enabled to false"},
		{"opencode", "project/opencode.jsonc", "{\"shell\":\"/bin/sh\",}", "sets shell to \"/bin/sh\""},
		{"opencode", "home/.config/opencode/opencode.jsonc", `{"shell":"/bin/sh"}`, "opencode.jsonc sets shell to \"/bin/sh\""},
		{"opencode", "home/.config/opencode/opencode.jsonc", `{"model":"m"}`, ""},
		{"copilot", "project/.github/hooks/x.json", "{}", "is the project's own"},
		{"copilot", "project/.github/copilot/settings.json", `{"disableAllHooks":true}`, "sets disableAllHooks to true"},
		{"copilot", "project/.claude/settings.json", `{"disableAllHooks":true}`, "sets disableAllHooks to true"},
		{"copilot", "project/.claude/settings.local.json", `{"hooks":{"PreToolUse":[{}]}}`, "sets hooks.PreToolUse to [{}]"},
		{"copilot", "project/.claude/settings.json", `{"model":"opus"}`, ""},
		{"cline", "project/.clinerules/hooks/PreToolUse", "#!/bin/sh\n", "is the project's own"},
		{"cline", "", "", ""},
	} {
		p := testPlaces(t, User)
		p.Cloche, p.Dir = self, filepath.Join(p.Project, "sub", "dir")
		a, err := Find(c.agent)
		if err != nil {
			t.Fatal(err)
		}
		s := Open(filepath.Join(t.TempDir(), "data"))
		install(t, s, a, p)
		if c.file != "" {
			write(t, filepath.Join(filepath.Dir(p.Home), c.file), c.text, 0o755)
		}
		records, err := s.Installed(a.Name, p.Project)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(a.Problems(records, p), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s with %s %s: problems %q, want %q", c.agent, c.file, c.text, got, c.want)
		}
		p.Cloche = "/nowhere"
		if got := strings.Join(a.Problems(records, p), "\n"); !strings.Contains(got, "and this is /nowhere") {
			t.Errorf("%s: another cloche: %q", c.agent, got)
		}
	}
}

// N15: the hook of Codex counts as trusted only with the hash of its definition.
func TestCodexTrust(t *testing.T) {
	self, _ := os.Executable()
	p := testPlaces(t, User)
	p.Cloche = self
	a, _ := Find("codex")
	s := Open(filepath.Join(t.TempDir(), "data"))
	install(t, s, a, p)
	records, err := s.Installed("codex", "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(records, func(r Record) bool { return r.Edits != nil })
	file := records[i].File
	// The text that Codex hashes, written out.
	text := `{"event_name":"pre_tool_use","hooks":[{"async":false,"command":` + jsonText(Quote(self)+" hook codex") + `,"timeout":20,"type":"command"}],"matcher":"Bash"}`
	table := "[hooks.state.\"" + file + ":pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:" + sum(text) + "\"\n"
	for config, trusted := range map[string]bool{
		table:                                   true,
		"model = \"x\"\n" + table:               true,
		table + "enabled = false\n":             false,
		strings.ToUpper(table):                  false,
		strings.Replace(table, "0:0", "1:0", 1): false,
		"":                                      false,
	} {
		write(t, filepath.Join(p.Home, ".codex/config.toml"), config, 0o600)
		if got := a.Problems(records, p); (len(got) == 0) != trusted {
			t.Errorf("config %q: problems %q", config, got)
		}
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// scripts are commands that quoting could get wrong.
var scripts = []string{
	"echo hi", "", " ", "it's", "''", `'"'"'`, "a\nb", "a\\", `\'`, "$(id)", "`id`", "$HOME", "--", "-c", "--rw /", "-- x", "a;b", "a'$(touch /tmp/x)'b", "\t", "é ✓", "!history",
	"#no", "~", "*", "a=b", "{a,b}", "\r\n", "\x01\x7f", strings.Repeat("'", 2000), "cloche agent exec --rw / -- 'x'",
}

// argument runs a rewritten command line with sh, in which a program that prints its arguments stands for cloche.
func argument(t *testing.T, line, shell string) string {
	t.Helper()
	out, err := exec.Command(shell, "-c", line).Output()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return string(out)
}

func printer(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cloche")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nfor a in \"$@\"; do printf '%s\\0' \"$a\"; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// N15: what a hook writes gives the script to cloche as one argument, unchanged, whatever is in it.
func TestHookRewrites(t *testing.T) {
	testenv.Need(t, "sh")
	testenv.AlsoAsUser(t)
	cloche := printer(t)
	from := Caller{Cloche: cloche, Prefix: func() error { return nil }}
	for _, format := range []struct {
		agent string
		in    func(string) any
		out   []string // where the command is in the answer
	}{
		{"codex", func(s string) any { return object{"tool_name": "Bash", "tool_input": object{"command": s, "x": 1}} }, []string{"hookSpecificOutput", "updatedInput", "command"}},
		{"gemini", func(s string) any {
			return object{"tool_name": "run_shell_command", "tool_input": object{"command": s, "dir_path": "."}}
		}, []string{"hookSpecificOutput", "tool_input", "command"}},
		{"copilot", func(s string) any { return object{"toolName": "bash", "toolArgs": object{"command": s}} }, []string{"modifiedArgs", "command"}},
		{"copilot", func(s string) any { return object{"toolName": "bash", "toolArgs": jsonText(object{"command": s})} }, []string{"modifiedArgs", "command"}},
		{"cline", func(s string) any {
			return object{"tool_call": object{"name": "run_commands", "input": object{"commands": []any{s, "second"}}}}
		}, []string{"overrideInput", "commands"}},
		{"cline", func(s string) any {
			return object{"tool_call": object{"name": "run_commands", "input": object{"commands": s}}}
		}, []string{"overrideInput", "commands"}},
		{"cursor", func(s string) any { return object{"tool_name": "Shell", "tool_input": object{"command": s}} }, []string{"updated_input", "command"}},
	} {
		a, err := Find(format.agent)
		if err != nil {
			t.Fatal(err)
		}
		for _, script := range scripts {
			r := a.Answer([]byte(jsonText(format.in(script))), from)
			if r.Status != 0 || r.Stderr != "" {
				t.Errorf("%s %q: blocked: %q", a.Name, script, r.Stderr)
				continue
			}
			raw, err := lookup([]byte(r.Stdout), false, format.out)
			if err != nil || raw == "" {
				t.Fatalf("%s: %q has no %v (%v)", a.Name, r.Stdout, format.out, err)
			}
			var line string
			if json.Unmarshal([]byte(raw), &line) != nil {
				var lines []string
				if err := json.Unmarshal([]byte(raw), &lines); err != nil {
					t.Fatal(err)
				}
				line = lines[0]
			}
			if got, want := argument(t, line, "sh"), "agent\x00exec\x00--\x00"+script+"\x00"; got != want {
				t.Errorf("%s %q: cloche gets %q", a.Name, script, got)
			}
		}
	}
}

// N15: whatever a hook does not understand it blocks, in the way that the agent honours, and leaves other tools alone.
func TestHookBlocks(t *testing.T) {
	from := Caller{Cloche: testCloche, Prefix: func() error { return errors.New("the prefix is not cloche's") }}
	bad := []string{
		"", "null", "[]", "7", "{", "{}", "\x00\x01\xff", `{"tool_name":7}`, `{"tool_name":null,"toolName":null,"tool_call":null}`, `{"Tool_Name":"Bash"}`,
		strings.Repeat(" ", MaxInput+1), `{"tool_call":{"name":"run_commands","input":{"commands":[{"command":"x"}]}}}` + "x",
	}
	shell := map[string][]string{
		"claude":  {`{"tool_name":"Bash","tool_input":{"command":"x"}}`},
		"codex":   {`{"tool_name":"Bash"}`, `{"tool_name":"Bash","tool_input":{"command":["a"]}}`, `{"tool_name":"Bash","tool_input":{"command":"a\u0000b"}}`, `{"tool_name":"Bash","tool_input":{"Command":"a"}}`},
		"gemini":  {`{"tool_name":"run_shell_command","tool_input":null}`, `{"tool_name":"run_shell_command","tool_input":{"command":null}}`},
		"copilot": {`{"toolName":"bash","toolArgs":"no JSON"}`, `{"toolName":"bash"}`, `{"toolName":"write_bash","toolArgs":{"input":"x"}}`},
		"cline":   {`{"tool_call":{"name":"run_commands","input":{"commands":[{"command":"x"}]}}}`, `{"tool_call":{"name":"run_commands","input":{"commands":[]}}}`},
		"cursor":  {`{"tool_name":"Shell","tool_input":"x"}`, jsonText(object{"tool_name": "Shell", "tool_input": object{"command": strings.Repeat("x", maxArgument)}})},
	}
	other := map[string]string{
		"claude": `{"tool_name":"Read"}`, "codex": `{"tool_name":"apply_patch"}`, "gemini": `{"tool_name":"read_file"}`, "copilot": `{"toolName":"view"}`,
		"cline": `{"tool_call":{"name":"read_files"}}`, "cursor": `{"tool_name":"Read"}`,
	}
	denial := map[string]string{"copilot": `"permissionDecision":"deny"`, "cline": `"cancel":true`, "cursor": `"permission":"deny"`}
	for name, more := range shell {
		a, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range slices.Concat(bad, more) {
			r := a.Answer([]byte(in), from)
			if want, isText := denial[name]; isText && (r.Status != 0 || !strings.Contains(r.Stdout, want)) || !isText && (r.Status != 2 || r.Stdout != "" || r.Stderr == "") {
				t.Errorf("%s %.80q is not blocked: %+v", name, in, r)
			}
		}
		r := a.Answer([]byte(other[name]), from)
		if r.Status != 0 || r.Stderr != "" || r.Stdout != "" && r.Stdout != "{\"cancel\":false}\n" {
			t.Errorf("%s: another tool is not left alone: %+v", name, r)
		}
	}
	for _, a := range All() {
		if a.Instead != "" {
			if r := a.Answer([]byte(`{"tool_name":"Bash","tool_input":{"command":"x"}}`), from); r.Status != 2 {
				t.Errorf("%s, which has no hook: %+v", a.Name, r)
			}
		}
	}
}

// N15: quoting, and the way of a text through the JSON of an answer, lose nothing.
func FuzzQuote(f *testing.F) {
	for _, s := range scripts {
		f.Add(s)
	}
	cloche := printer(f)
	f.Fuzz(func(t *testing.T, script string) {
		line, err := Line(cloche, script)
		if err != nil {
			if !strings.Contains(script, "\x00") && len(script) < maxArgument/6 {
				t.Errorf("%q: %v", script, err)
			}
			return
		}
		if got := argument(t, line, "sh"); got != "agent\x00exec\x00--\x00"+script+"\x00" {
			t.Errorf("%q arrives as %q", script, got)
		}
	})
}

// N15: an edit and its undoing leave a text as it was but for spaces, and never make it invalid.
func FuzzEdit(f *testing.F) {
	for _, text := range existing {
		f.Add(text)
	}
	f.Add("{}")
	f.Add(`{"hooks":{"PreToolUse":[1,],},}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, comments := range []bool{false, true} {
			if _, err := parseText([]byte(text), comments); err != nil {
				continue
			}
			before := compact([]byte(text), comments)
			for _, e := range []Edit{{Path: []string{"hooks", "PreToolUse"}, Append: true, Value: object{"cloche": 1}}, {Path: []string{"env", "X"}, Value: "cloche"}} {
				if has, _ := e.in([]byte(text), comments); has {
					continue
				}
				changed, old, err := e.apply([]byte(text), comments)
				if err != nil {
					continue
				}
				if has, err := e.in(changed, comments); err != nil || !has {
					t.Fatalf("%q became %q, without the entry (%v)", text, changed, err)
				}
				back, has, err := e.undo(changed, comments, old)
				if err != nil || !has {
					t.Fatalf("%q became %q: %v %v", text, changed, has, err)
				}
				// An object that was empty before goes with its last entry.
				if after := compact(back, comments); after != before && !strings.Contains(before, "{}") && !strings.Contains(before, "[]") {
					t.Fatalf("%q became %q and then %q", text, changed, back)
				}
			}
		}
	})
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
