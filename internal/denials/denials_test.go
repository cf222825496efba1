package denials

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func refusal(op plan.Op, path, program string) plan.Denial {
	return plan.Denial{Decision: plan.Decision{Op: op, Path: path, Access: policy.Read, Rule: "paths.read", Subject: "/", At: "/"}, Program: program, Count: 1}
}

func hidden(op plan.Op, path, at string) plan.Denial {
	return plan.Denial{Decision: plan.Decision{Op: op, Path: path, Access: policy.Hidden, Rule: "paths.hide", Subject: at, At: at, Origin: policy.Origin{Layer: policy.LayerPreset}}, Program: "x", Count: 1}
}

// N1: equal refusals are one entry, what is over the limit is counted, and what
// is listed goes on being counted exactly.
func TestLogIsBounded(t *testing.T) {
	var l Log
	for i := range Limit + 50 {
		l.Add(refusal(plan.OpCreate, fmt.Sprint("/etc/", i), "sh"))
	}
	for range 7 {
		l.Add(refusal(plan.OpCreate, "/etc/0", "other"))
	}
	list, more := l.All()
	if len(list) != Limit || more != 50 {
		t.Errorf("%d listed, %d more", len(list), more)
	}
	if d := list[0]; d.Count != 8 || d.Program != "sh" || d.Time.IsZero() {
		t.Errorf("the first is %+v", d)
	}
	if l.Wants(refusal(plan.OpCreate, "/etc/new", "sh")) {
		t.Error("it wants to know more of what it cannot list")
	}
}

// N1: the files of one folder are printed in one line, with the option for all.
func TestFold(t *testing.T) {
	list := []plan.Denial{
		refusal(plan.OpCreate, "/usr/share/x/a", "make"), refusal(plan.OpCreate, "/usr/share/x/b", "make"), refusal(plan.OpCreate, "/usr/share/x/c", "make"),
		hidden(plan.OpRead, "/home/u/.ssh/id_a", "/home/u/.ssh"), hidden(plan.OpRead, "/home/u/.ssh/keys/id_b", "/home/u/.ssh"),
		refusal(plan.OpCreate, "/home/u/one", "sh"), refusal(plan.OpCreate, "/home/u/two", "sh"),
		{Decision: plan.Decision{Op: plan.OpResolve, Host: "a.example", Rule: judge.RuleNetworkAllow}, Count: 2},
		{Decision: plan.Decision{Op: plan.OpConnect, Host: "a.example", Port: 443, Protocol: "tcp", Rule: judge.RuleNetworkAllow}, Count: 3},
	}
	var got []string
	for _, g := range Fold(fixed(list), "/home/u", judge.Fixer{}) {
		got = append(got, fmt.Sprintf("%d %s %d %s", g.Count, g.Op, g.Files, runoption.Text(g.Together...)))
	}
	want := []string{
		"5 connect 1 --allow a.example:443",
		"3 create 3 --rw /usr/share/x",
		"2 read 2 --ro /home/u/.ssh",
		"1 create 1 --rw /home/u",
		"1 create 1 --rw /home/u",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// N1: nothing is printed to people of a command that went well, and to an agent not what
// programs do well without. Of one that failed nothing is called harmless.
func TestNoise(t *testing.T) {
	secret := hidden(plan.OpRead, "/home/u/.ssh/id", "/home/u/.ssh")
	list := []plan.Denial{refusal(plan.OpMkdir, "/usr/lib/python3/json/__pycache__", "python3"), refusal(plan.OpCreate, "/home/u/.viminfo", "vim"),
		refusal(plan.OpCreate, "/usr/share/x", "make"), secret}
	well := Telling{List: fixed(list), Success: true, Home: "/home/u", Where: "the log"}
	if lines := well.Lines(); len(lines) != 0 {
		t.Errorf("of a command that went well: %q", lines)
	}
	if text := well.Text(); !strings.Contains(text, "/home/u/.ssh/id") || !strings.Contains(text, "/usr/share/x") || strings.Contains(text, "viminfo") {
		t.Errorf("to an agent: %q", text)
	}
	badly := Telling{List: fixed(list), Home: "/home/u", Where: "the log"}
	lines := badly.Lines()
	if len(lines) != 4 || strings.Contains(strings.Join(lines, "")+badly.Text(), "seldom") || !strings.Contains(lines[3], "viminfo") {
		t.Errorf("of one that failed: %q", lines)
	}
	if noiseOf(&plan.Denial{Decision: plan.Decision{Op: plan.OpRead, Path: "/home/u/.netrc"}, Program: "evil"}) != "" {
		t.Error("a program that has no business there is let off")
	}
}

// N1: a tool's cache is printed as a whole, with the preset of the tool or the folder.
func TestCaches(t *testing.T) {
	home := t.TempDir()
	for _, dir := range []string{"/.cache/go-build/3f", "/.cache/sccache/1"} {
		if err := os.MkdirAll(home+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOCACHE", "")
	t.Setenv("XDG_CACHE_HOME", "")
	list := []plan.Denial{
		refusal(plan.OpCreate, home+"/.cache/go-build/3f/x-a", "go"), refusal(plan.OpMkdir, home+"/.cache/go-build/00", "go"),
		refusal(plan.OpCreate, home+"/.cache/sccache/1/y", "sccache"),
		{Decision: plan.Decision{Op: plan.OpResolve, Host: "registry.npmjs.org", Rule: judge.RuleNetworkMode, Subject: "none"}, Count: 1},
	}
	text := strings.Join((&Telling{List: fixed(list), Home: home}).Lines(), "\n")
	for _, want := range []string{"2 files in " + home + "/.cache/go-build by go (2 times)", "allow it with --preset go", "allow it with --rw " + home + "/.cache/sccache\n", "resolve registry.npmjs.org", "allow it with --preset node"} {
		if !strings.Contains(text+"\n", want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}

// N1: a few lines, and how many attempts are in none of them.
func TestLinesAreFew(t *testing.T) {
	var list []plan.Denial
	for i := range 9 {
		d := refusal(plan.OpCreate, fmt.Sprintf("/usr/share/%d/x", i), "sh")
		d.Count = 10 - i
		list = append(list, d)
	}
	badly := Telling{List: fixed(list), More: 100, Where: "the log"}
	lines := badly.Lines()
	if len(lines) != maxLines+1 || !strings.Contains(lines[0], "/usr/share/0/x") || lines[maxLines] != "and 114 more refusals; the log has all that were kept" {
		t.Errorf("%q", lines)
	}
	text := badly.Text()
	if strings.Count(text, "\n- ") != maxLines+1 || !strings.Contains(text, "option: --rw /usr/share/0") || !strings.Contains(text, "- and 114 more\n") {
		t.Errorf("the text is %q", text)
	}
	if text := (&Telling{Success: true}).Text(); text != "" {
		t.Errorf("nothing was refused: %q", text)
	}
}

// W8: names cannot act on a terminal, whoever made them.
func TestNothingActsOnATerminal(t *testing.T) {
	bad := Telling{List: fixed([]plan.Denial{refusal(plan.OpCreate, "/usr/\x1b[2Jx/a", "e\x1b]0;x\a"), refusal(plan.OpCreate, "/usr/\x1b[2Jx/b", "e")})}
	for _, s := range append(bad.Lines(), bad.Text()) {
		if strings.ContainsAny(s, "\x1b\a") {
			t.Errorf("%q", s)
		}
	}
}

// N1: an agent that runs without its preset is reported with it; nobody else is, because the
// preset opens the login.
func TestAgentPresetIsNamed(t *testing.T) {
	t.Setenv("CODEX_HOME", "")
	home := t.TempDir()
	login := hidden(plan.OpRead, home+"/.codex/auth.json", home+"/.codex/auth.json")
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"/usr/bin/codex", "exec"}, "codex"}, {[]string{"node", "/usr/lib/node_modules/.bin/codex"}, "codex"},
		{[]string{"node", "/x/gemini.js"}, ""}, {[]string{"cat", "/x/codex"}, ""}, {nil, ""},
	} {
		login.Argv = tt.argv
		if got := Fold(fixed([]plan.Denial{login}), home, judge.Fixer{})[0].Preset; got != tt.want {
			t.Errorf("%q: %q, want %q", tt.argv, got, tt.want)
		}
	}
}

// N1: a preset is named if it allows what was denied, together with those of the run, and not
// if it is in force already or something stronger denies.
func TestPresetIsNamed(t *testing.T) {
	for _, name := range []string{"NPM_CONFIG_CACHE", "XDG_CACHE_HOME", "CARGO_HOME"} {
		t.Setenv(name, "")
	}
	home := t.TempDir()
	for _, dir := range []string{"/.npm", "/.cargo"} {
		if err := os.Mkdir(home+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	host := func(mode, source string, l policy.Layer) plan.Denial {
		return plan.Denial{Decision: plan.Decision{Op: plan.OpResolve, Host: "registry.npmjs.org", Rule: judge.RuleNetworkMode, Subject: mode, Origin: policy.Origin{Layer: l, Source: source}}, Count: 1}
	}
	from := func(presets ...string) *plan.Plan {
		p := &plan.Plan{}
		for _, name := range presets {
			p.Env = append(p.Env, plan.Var{Origin: policy.Origin{Source: "preset " + name}})
		}
		return p
	}
	covered := from()
	covered.Repeated = []plan.Path{{Path: home + "/.npm", Origin: policy.Origin{Layer: policy.LayerCommand}}}
	for name, c := range map[string]struct {
		denial plan.Denial
		plan   *plan.Plan
		want   string
	}{
		"a cache":             {refusal(plan.OpCreate, home+"/.npm/x", "npm"), from("workspace", "secrets"), "node"},
		"with another":        {refusal(plan.OpCreate, home+"/.npm/x", "npm"), from("strict", "dotenv", "sinks"), "dotenv,strict,node"},
		"in force":            {refusal(plan.OpCreate, home+"/.npm/x", "npm"), from("node"), ""},
		"stronger":            {refusal(plan.OpCreate, home+"/.npm/x", "npm"), covered, ""},
		"protected by preset": {refusal(plan.OpCreate, home+"/.cargo/env.x", "sh"), nil, ""},
		"beside it":           {refusal(plan.OpCreate, home+"/.cargo/x", "cargo"), nil, "rust"},
		"a folder around it":  {refusal(plan.OpMkdir, home+"/.m2", "mvn"), nil, "java"},
		"a shared folder":     {refusal(plan.OpMkdir, home+"/.cache", "x"), nil, ""},
		"no such folder":      {refusal(plan.OpCreate, home+"/.local/share/pnpm/store/x", "pnpm"), nil, ""},
		"a host":              {host("none", "preset workspace", policy.LayerPreset), nil, "node"},
		"a chosen mode":       {host("none", "--net none", policy.LayerCommand), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := Fold(fixed([]plan.Denial{c.denial}), home, judge.Fixer{Plan: c.plan})[0]
			got := ""
			if len(g.Together) == 1 && g.Together[0].Field == "presets" {
				got = g.Together[0].Value
			}
			if got != c.want {
				t.Errorf("got %q, want %q: %s", got, c.want, g.String())
			}
		})
	}
}

// N1: what an agent asks of hosts at its start is noise by that agent alone.
func TestCallsAreNoise(t *testing.T) {
	asks := func(program, host string, argv ...string) bool {
		return noiseOf(&plan.Denial{Decision: plan.Decision{Op: plan.OpConnect, Host: host, Port: 443}, Program: program, Argv: argv}) != ""
	}
	if !asks("/x/bin/codex", "api.github.com") || !asks("/usr/lib/git-core/git-remote-http", "github.com", "git-remote-https", "https://github.com/openai/plugins.git") {
		t.Error("what Codex asks at its start is printed")
	}
	if asks("/usr/bin/curl", "api.github.com") || asks("/usr/lib/git-core/git-remote-http", "github.com", "git-remote-https", "https://github.com/o/r.git") || asks("/x/bin/codex", "evil.example") {
		t.Error("what others ask is not told")
	}
}

// A habit that cannot match is a mistake.
func TestHabitsAreWellFormed(t *testing.T) {
	for _, h := range habits {
		for _, p := range h.paths {
			if !pathx.ValidGlob(p) {
				t.Errorf("%q is no pattern", p)
			}
		}
		if len(h.ops) == 0 || len(h.paths) == 0 || h.reason == "" {
			t.Errorf("%+v says too little", h)
		}
	}
}

// fixed adds what would allow each denial, as the engine does.
func fixed(list []plan.Denial) []plan.Denial {
	for i := range list {
		judge.Fixer{}.Fix(&list[i].Decision)
	}
	return list
}
