package learn

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func sample() *File {
	m := machine("/data/", "/home/ana/.cache/go-build/")
	const home = "/home/ana"
	all := m.Needs([]plan.Denial{
		onlyRead(plan.OpCreate, home+"/.cache/go-build/00/x"), onlyRead(plan.OpMkdir, home+"/.npm/_cacache"), onlyRead(plan.OpCreate, home+"/.config/thing/x"),
		onlyRead(plan.OpCreate, "/data/$out/x"), onlyRead(plan.OpCreate, home+"/app/sub/x"), unseen(home + "/.pyenv/shims/python3"), unseen("/data/in put/a"),
		sensitive(plan.OpRead, home+"/.ssh/config", "paths.hide", home+"/.ssh"), sensitive(plan.OpCreate, home+"/app/.envrc", "paths.protect", home+"/app/.envrc"),
		sensitive(plan.OpRename, home+"/app/.git/config", "git.config", home+"/app/.git/config"),
		refusedHost(plan.OpConnect, "registry.example", 443, "tcp", plan.RuleNetworkAllow), refusedHost(plan.OpConnect, "10.0.0.1", 80, "tcp", plan.RuleNetworkPrivate),
		refusedHost(plan.OpConnect, "127.0.0.1", 5432, "tcp", plan.RuleNetworkPrivate),
	})
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
	mode, network := policy.EnvScrubbed, policy.NetworkUser
	f.Start = &policy.Document{Presets: []string{"strict"}, Paths: &policy.PathsSection{Read: []policy.PathEntry{{Path: "/srv/in", Optional: true}}, Hide: []policy.PathEntry{{Path: "**/*.pem"}}},
		Env:     &policy.EnvSection{Policy: &mode, Pass: []string{"CI"}, Set: map[string]string{"TOKEN": "hunter2"}},
		Network: &policy.NetworkSection{Mode: &network, Deny: []policy.HostEntry{{Host: "evil.example"}}}}
	text, err := f.Text()
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/started.yaml", text)
	if strings.Contains(text, "hunter2") {
		t.Error("the value of a variable is in the file")
	}
	doc := parse(t, text)
	if !slices.Equal(doc.Presets, []string{"strict"}) || len(doc.Network.Deny) != 1 {
		t.Errorf("what was asked for is not in the file: %+v", doc)
	}
}

func parse(t *testing.T, text string) *policy.Document {
	t.Helper()
	doc, err := policy.ParseIn("learned.yaml", "/home/ana/app", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerProject}); err != nil {
		t.Fatal(err)
	}
	return doc
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
		f.Given, f.Left = split(m.Needs([]plan.Denial{d})), m.Needs([]plan.Denial{secret})
		text, err := f.Text()
		if err != nil {
			t.Fatal(err)
		}
		doc := parse(t, text)
		if doc.Presets != nil || doc.Network != nil || doc.Paths != nil && len(doc.Paths.Read)+len(doc.Paths.Hide) > 0 {
			t.Errorf("%q: the file says more than it should:\n%s", evil, text)
		}
		if doc.Paths == nil { // no rule can hold the name
			continue
		}
		want := strings.ReplaceAll(path, "$", "$$")
		if got := doc.Paths.Write; len(got) != 1 || got[0].Path != want && got[0].Path != "/data" || got[0].Optional {
			t.Errorf("%q: read back as %+v", evil, got)
		}
	}
}

// split leaves out what no rule opens, as the command does.
func split(needs []Need) []Need {
	return slices.DeleteFunc(needs, func(n Need) bool { return n.Class == Closed })
}
