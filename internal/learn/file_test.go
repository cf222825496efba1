package learn

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func sample() *File {
	m := machine("/data/", "/home/ana/.cache/go-build/")
	const home = "/home/ana"
	all := m.Needs(fixed([]plan.Denial{
		onlyRead(plan.OpCreate, home+"/.cache/go-build/00/x"), onlyRead(plan.OpMkdir, home+"/.npm/_cacache"), onlyRead(plan.OpCreate, home+"/.config/thing/x"),
		onlyRead(plan.OpCreate, "/data/$out/x"), onlyRead(plan.OpCreate, home+"/app/sub/x"), unseen(home + "/.pyenv/shims/python3"), unseen("/data/in put/a"),
		sensitive(plan.OpRead, home+"/.ssh/config", "paths.hide", home+"/.ssh"), sensitive(plan.OpCreate, home+"/app/.envrc", "paths.protect", home+"/app/.envrc"),
		sensitive(plan.OpRename, home+"/app/.git/config", "git.config", home+"/app/.git/config"),
		refusedHost(plan.OpConnect, "registry.example", 443, "tcp", judge.RuleNetworkAllow), refusedHost(plan.OpConnect, "10.0.0.1", 80, "tcp", judge.RuleNetworkPrivate),
		refusedHost(plan.OpConnect, "127.0.0.1", 5432, "tcp", judge.RuleNetworkPrivate),
	}))
	f := &File{Machine: m, Base: m.Workspace, Command: "cloche learn -- npm ci", Outcome: "The last run ended with status 0."}
	include := []string{"/home/ana/app/.envrc", "5432"}
	for _, n := range all {
		switch {
		case n.Class == Closed, n.Class == Sensitive && !n.Named(include):
			f.Left = append(f.Left, n)
		case n.Path == "/home/ana/.config/thing":
			f.Proposed = append(f.Proposed, n)
		default:
			f.Given = append(f.Given, n)
		}
	}
	return f
}

// N6: the file is grouped and commented, and reads back as the rules in it.
func TestGoldenFile(t *testing.T) {
	text, err := sample().Text()
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/learned.yaml", text)
	parse(t, text)
}

// N6: what the caller started from is in the file, but for values of variables.
func TestGoldenStart(t *testing.T) {
	f := sample()
	doc, err := policy.Parse("flags", []byte(`presets: [strict]
paths: {read: ["?/srv/in"], hide: ["**/*.pem"]}
env: {policy: scrubbed, pass: [CI], set: {TOKEN: hunter2}}
network: {mode: user, deny: [evil.example]}`))
	if err != nil {
		t.Fatal(err)
	}
	if f.Start, err = doc.Settings(); err != nil {
		t.Fatal(err)
	}
	text, err := f.Text()
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/started.yaml", text)
	if strings.Contains(text, "hunter2") {
		t.Error("the value of a variable is in the file")
	}
	settings := parse(t, text)
	for _, field := range []string{"presets", "network.deny"} {
		if n := len(values(settings, field)); n != 1 {
			t.Errorf("%s has %d values: what was asked for is not in the file: %+v", field, n, settings)
		}
	}
}

// values are the values of a field.
func values(settings []policy.Setting, field string) []any {
	var out []any
	for _, s := range settings {
		if s.Field == field {
			out = append(out, s.Value)
		}
	}
	return out
}

func parse(t *testing.T, text string) []policy.Setting {
	t.Helper()
	doc, err := policy.ParseIn("learned.yaml", "/home/ana/app", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerProject}); err != nil {
		t.Fatal(err)
	}
	settings, err := doc.Settings()
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// N6: no name of a file, program or host makes the file say something else. The
// command chooses all of them.
func TestHostileNames(t *testing.T) {
	for _, evil := range []string{
		"a\n    - /etc", "a  # x", `a"b`, "a: b", "{a}", "- a", "!x", "&x", "%x", "'", "\"", "a, b", "[a", "*", "?x", "$HOME", "${HOME}", "~", "..x", "\u202e", "\u2028- /etc",
		"\x1b[31m", "\x7f", "\u0085x", "#", "null", "true", "\\", "@x", "`", "|", ">", "a}, {path: /etc", strings.Repeat("x", 4000),
	} {
		path := "/data/" + evil + "/file"
		m := machine()
		d := onlyRead(plan.OpWrite, path)
		d.Program, d.Reason = evil, evil
		secret := sensitive(plan.OpRead, path, "paths.hide", path)
		secret.Reason, secret.Program = evil, evil
		f := &File{Machine: m, Base: m.Workspace, Command: evil, Outcome: evil}
		f.Given, f.Left = split(m.Needs(fixed([]plan.Denial{d}))), m.Needs(fixed([]plan.Denial{secret}))
		text, err := f.Text()
		if err != nil {
			t.Fatal(err)
		}
		settings := parse(t, text)
		for _, v := range settings {
			if v.Field != "version" && v.Field != "paths.write" {
				t.Errorf("%q: the file says more than it should:\n%s", evil, text)
			}
		}
		written := values(settings, "paths.write")
		if len(written) == 0 { // no rule can hold the name
			continue
		}
		want := strings.ReplaceAll(path, "$", "$$")
		if got, ok := written[0].(policy.PathRule); !ok || len(written) != 1 || got.Path != want && got.Path != "/data" || got.Optional {
			t.Errorf("%q: read back as %+v", evil, written)
		}
	}
}

// split leaves out what no rule opens, as the command does.
func split(needs []Need) []Need {
	return slices.DeleteFunc(needs, func(n Need) bool { return n.Class == Closed })
}
