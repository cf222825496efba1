package policy

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustParse(t testing.TB, name, text string) *Document {
	t.Helper()
	doc, err := ParseIn(name, "/proj", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func mustMerge(t testing.TB, layers ...Layered) (Policy, []Ignored) {
	t.Helper()
	p, ignored, err := Merge(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return p, ignored
}

// F7: golden policies of the good files over their presets, origins included.
func TestMergeGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/good/*")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, untrusted := range []bool{false, true} {
				p, ignored := mustMerge(t, Layered{Doc: parseFile(t, file, "/proj"), Layer: LayerProject, Untrusted: untrusted})
				// The secrets are many, and have a test of their own.
				p.Paths = slices.DeleteFunc(p.Paths, func(r PathRule) bool { return r.Origin.Source == "preset secrets" })
				var text bytes.Buffer
				if err := json.Indent(&text, goJSON(t, reflect.ValueOf(struct {
					Policy  Policy
					Ignored []Ignored
				}{p, ignored})), "", "  "); err != nil {
					t.Fatal(err)
				}
				name := filepath.Base(file) + map[bool]string{false: ".trusted", true: ".untrusted"}[untrusted]
				golden(t, filepath.Join("testdata/golden", name), text.String()+"\n")
			}
		})
	}
}

// goJSON writes a value as JSON with the names of the Go fields: the model's own JSON is
// that of policy files, and has neither accesses nor origins.
func goJSON(t *testing.T, v reflect.Value) []byte {
	var b bytes.Buffer
	switch _, isText := v.Interface().(encoding.TextMarshaler); {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[Origin]() && !isText:
		b.WriteByte('{')
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !v.Type().Field(i).IsExported() || v.Field(i).IsZero() && slices.Contains([]string{"Create", "Workspace", "Ask", "Never"}, name) {
				continue
			}
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%s", name, goJSON(t, v.Field(i)))
		}
		b.WriteByte('}')
	case v.Kind() == reflect.Slice && !v.IsNil() && v.Len() > 0:
		for i := range v.Len() {
			b.WriteString(map[bool]string{true: "[", false: ","}[i == 0])
			b.Write(goJSON(t, v.Index(i)))
		}
		b.WriteByte(']')
	default:
		text, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.Bytes()
}

// F7: the higher layer's single values hold, whatever order they come in.
func TestHigherLayerWins(t *testing.T) {
	user := Layered{Doc: mustParse(t, "user", "network: host\ntmp: shared\nenv: {set: {A: user}}\nlimits: {time: 1m}\nenabled: false"), Layer: LayerUser}
	project := Layered{Doc: mustParse(t, "project", "network: loopback\nenv: {set: {A: project}}\nlimits: {time: 2m, output: 1k}"), Layer: LayerProject}
	session := Layered{Doc: &Document{content: document{Name: "session", Sandbox: ptr(true)}}, Layer: LayerSession}
	for _, layers := range [][]Layered{{user, project, session}, {session, project, user}} {
		p, _ := mustMerge(t, layers...)
		if p.Disabled || p.DisabledOrigin.Layer != LayerSession {
			t.Errorf("disabled is %v by %v, want the session's switch to win", p.Disabled, p.DisabledOrigin)
		}
		if p.Network.Mode != NetworkLoopback || p.Network.Origin.String() != "project:1" {
			t.Errorf("network is %s by %s", p.Network.Mode, p.Network.Origin)
		}
		if p.Tmp != TmpShared || p.TmpOrigin.Source != "user" {
			t.Errorf("tmp is %s by %s", p.Tmp, p.TmpOrigin)
		}
		if len(p.Env.Set) != 1 || p.Env.Set[0].Value != "project" {
			t.Errorf("variables are %v", p.Env.Set)
		}
		if p.Limits.Time != 2*time.Minute || p.Limits.Output != 1024 || p.Limits.Origin["time"].Source != "project" {
			t.Errorf("limits are %+v", p.Limits)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// F7: lists grow, and each entry knows its place.
func TestListsAppendWithOrigins(t *testing.T) {
	p, _ := mustMerge(t,
		Layered{Doc: mustParse(t, "u", "presets: []\npaths: {write: [/a]}"), Layer: LayerUser},
		Layered{Doc: mustParse(t, "p", "paths:\n  write:\n    - /b\n  hide: [c]"), Layer: LayerProject})
	want := []PathRule{
		{Path: "/a", Access: Write, Origin: Origin{Layer: LayerUser, Source: "u", Line: 2, Column: 17}},
		{Path: "/b", Access: Write, Origin: Origin{Layer: LayerProject, Source: "p", Line: 3, Column: 7}},
		{Path: "/proj/c", Access: Hidden, Origin: Origin{Layer: LayerProject, Source: "p", Line: 4, Column: 10}},
	}
	if !reflect.DeepEqual(p.Paths, want) {
		t.Errorf("got %+v", p.Paths)
	}
}

// F7: presets come from the highest trusted layer that names any.
func TestPresetsOfHighestLayer(t *testing.T) {
	user := Layered{Doc: mustParse(t, "u", "presets: [open]"), Layer: LayerUser}
	p, _ := mustMerge(t, user)
	if p.Network.Mode != NetworkHost {
		t.Errorf("the user's preset gives network %s", p.Network.Mode)
	}
	p, _ = mustMerge(t, user, Layered{Doc: &Document{content: document{Presets: []string{"strict"}}}, Layer: LayerCommand})
	if p.Network.Mode != NetworkNone || p.Reads != ReadsSystem {
		t.Errorf("the command's preset gives network %s, reads %s", p.Network.Mode, p.Reads)
	}
	p, _ = mustMerge(t)
	if p.Reads != ReadsHost || p.ReadsOrigin.String() != "preset workspace:8" {
		t.Errorf("the default gives reads %s by %s", p.Reads, p.ReadsOrigin)
	}
}

// F7: one untrusted document that asks for everything gets nothing of it.
func TestUntrustedCannotLoosen(t *testing.T) {
	base := "presets: [strict]\nwarm: false\nnetwork: {mode: user, allow: [good.example]}\nlimits: {time: 1m, memory: 1GiB}"
	greedy := `
enabled: false
presets: [open, caches, go]
reads: host
binds: [/etc:/mnt]
persist: [~/.x]
remap: /w
tmp: shared
home: {value: /h, visible: true}
hosts: "1.2.3.4 good.example"
network: {mode: user, allow: [evil.example]}
env: {policy: inherit, pass: [SECRET], set: {LD_PRELOAD: /x}}
sockets: [/run/docker.sock]
limits: {time: unlimited, memory: 2GiB, output: 1GiB, processes: unlimited, open_files: 5000, file_size: 17GiB}
allow_privileged: true
require: best-effort
warm: true
backend: {name: none, fallback: warn}
backends: {bwrap: {path: /proj/evil, extra_args: [--dev-bind, /, /]}}
paths: {write: [/etc], read: [/root]}
`
	user := Layered{Doc: mustParse(t, "user", base), Layer: LayerUser}
	want, _ := mustMerge(t, user)
	got, ignored := mustMerge(t, user, Layered{Doc: mustParse(t, "greedy", greedy), Layer: LayerProject, Untrusted: true})
	for _, r := range got.Paths {
		if !slices.Contains(want.Paths, r) && !r.Origin.Untrusted {
			t.Errorf("the rule for %s is not marked as untrusted", r.Path)
		}
	}
	got.Paths, want.Paths = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("an untrusted document changed the policy:\ngot  %+v\nwant %+v", got, want)
	}
	texts := ignoredTexts(ignored)
	for _, part := range []string{"enabled: false", "reads: host", "bind /etc", "persist ~/.x", "remap: /w", "tmp: shared", "home.value: /h",
		"hosts: 1.2.3.4 good.example", "network allow evil.example", "env.policy: inherit", "env pass SECRET", "env set LD_PRELOAD",
		"socket /run/docker.sock", "limits.time: unlimited", "limits.memory: 2GiB", "limits.output: 1GiB", "limits.processes: unlimited",
		"limits.open_files: 5000", "limits.file_size: 17GiB", "allow_privileged: true", "require: best-effort", "warm: true", "backend.name: none",
		"backend.fallback: warn", "backends.bwrap.path: /proj/evil", "bwrap argument --dev-bind", "network: host"} {
		if !slices.ContainsFunc(texts, func(s string) bool {
			return strings.HasPrefix(s, part) || part == "network: host" && strings.Contains(s, "host")
		}) {
			t.Errorf("%q was left out without a word; got %q", part, texts)
		}
	}
	for _, i := range ignored {
		if !i.Origin.Untrusted || i.Origin.Line == 0 {
			t.Errorf("%q has the origin %+v", i.Text, i.Origin)
		}
	}
}

func ignoredTexts(ignored []Ignored) []string {
	var out []string
	for _, i := range ignored {
		out = append(out, i.Text)
	}
	return out
}

// F7: what tightens always applies.
func TestUntrustedMayTighten(t *testing.T) {
	user := Layered{Doc: mustParse(t, "user", `
presets: [open]
enabled: false
tmp: shared
require: best-effort
fallback: warn
allow_privileged: true
env: {policy: inherit}
limits: {time: 1h, memory: 2GiB}`), Layer: LayerUser}
	project := `
enabled: true
reads: system
tmp: private
home: {visible: false}
require: strict
warm: false
fallback: refuse
allow_privileged: false
network: {mode: none, deny: [evil.example]}
env: {policy: scrubbed}
limits: {time: 1m, memory: 1GiB, output: 1MiB, processes: 10}
paths: {hide: [secret], protect: [.git]}
`
	p, ignored := mustMerge(t, user, Layered{Doc: mustParse(t, "project", project), Layer: LayerProject, Untrusted: true})
	if len(ignored) > 0 {
		t.Errorf("ignored: %q", ignoredTexts(ignored))
	}
	if p.Disabled || p.Reads != ReadsSystem || p.Tmp != TmpPrivate || !p.Home.Hidden || p.Require != Strict ||
		p.Backend.Fallback != FallbackRefuse || p.Privileged || p.Network.Mode != NetworkNone || p.Env.Mode != EnvScrubbed || !p.Cold {
		t.Errorf("not all is tightened: %+v", p)
	}
	if len(p.Network.Deny) != 1 || p.Limits.Time != time.Minute || p.Limits.Memory != 1<<30 || p.Limits.Output != 1<<20 || p.Limits.Processes != 10 {
		t.Errorf("not all is tightened: %+v %+v", p.Network, p.Limits)
	}
	if last := p.Paths[len(p.Paths)-1]; last.Path != "/proj/.git" || !last.Protect || !last.Origin.Untrusted {
		t.Errorf("the last rule is %+v", last)
	}
	// Memory that nobody limits is a share of the machine's, which a plan knows.
	p, ignored = mustMerge(t, Layered{Doc: mustParse(t, "project", "limits: {memory: 1GiB}"), Layer: LayerProject, Untrusted: true})
	if len(ignored) > 0 || p.Limits.Memory != 1<<30 || !p.Limits.Origin["memory"].Untrusted {
		t.Errorf("memory: %q, %+v", ignoredTexts(ignored), p.Limits)
	}
	// A flag of the user's beats the project again.
	p, _ = mustMerge(t, user, Layered{Doc: mustParse(t, "project", project), Layer: LayerProject, Untrusted: true},
		Layered{Doc: mustParse(t, "flags", "network: host"), Layer: LayerCommand})
	if p.Network.Mode != NetworkHost {
		t.Errorf("the network is %s", p.Network.Mode)
	}
}

// F7: presets of an untrusted document are untrusted, those in force already
// are nothing new.
func TestUntrustedPresets(t *testing.T) {
	p, ignored := mustMerge(t, Layered{Doc: mustParse(t, "project", "presets: [workspace, caches]"), Layer: LayerProject, Untrusted: true})
	if len(ignored) > 0 {
		t.Errorf("ignored: %q", ignoredTexts(ignored))
	}
	for _, r := range p.Paths {
		if want := r.Origin.Source == "preset caches"; r.Origin.Untrusted != want {
			t.Errorf("%s of %s: untrusted is %v", r.Path, r.Origin, r.Origin.Untrusted)
		}
	}
	p, _ = mustMerge(t, Layered{Doc: mustParse(t, "project", "presets: [strict]"), Layer: LayerProject, Untrusted: true})
	if p.Reads != ReadsSystem {
		t.Errorf("a stricter preset does not tighten: reads %s", p.Reads)
	}
	p, ignored = mustMerge(t, Layered{Doc: mustParse(t, "project", "presets: [open]"), Layer: LayerProject, Untrusted: true})
	if p.Network.Mode != NetworkNone {
		t.Errorf("a looser preset opens the network: %s", p.Network.Mode)
	}
	want := Ignored{Text: "network.mode: host (preset open:15)", Origin: Origin{Layer: LayerProject, Source: "project", Line: 1, Column: 1, Untrusted: true}}
	if !slices.Contains(ignored, want) {
		t.Errorf("got %+v, want %+v among them", ignored, want)
	}
}

// F6: a list of allowed hosts is never without effect, and never opens all.
func TestAllowImpliesUserMode(t *testing.T) {
	allow := Layered{Doc: mustParse(t, "f", "network: {allow: [a.example]}"), Layer: LayerCommand}
	for _, below := range []string{"network: none", "network: host"} {
		p, _ := mustMerge(t, Layered{Doc: mustParse(t, "u", below), Layer: LayerUser}, allow)
		if p.Network.Mode != NetworkUser || len(p.Network.Allow) != 1 {
			t.Errorf("over %q: mode %s, allow %v", below, p.Network.Mode, p.Network.Allow)
		}
	}
	for _, above := range []string{"network: false", "network: true"} {
		p, _ := mustMerge(t, allow, Layered{Doc: mustParse(t, "s", above), Layer: LayerSession})
		if p.Network.Mode == NetworkUser || len(p.Network.Allow) != 0 {
			t.Errorf("under %q: mode %s, allow %v", above, p.Network.Mode, p.Network.Allow)
		}
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestPresetCycle(t *testing.T) {
	docs := map[string]*document{
		"a": {Presets: []string{"b"}}, "b": {Presets: []string{"c"}}, "c": {Presets: []string{"b"}},
		"d": {Presets: []string{"e", "f"}}, "e": {Presets: []string{"f"}}, "f": {},
	}
	lookup := func(name string) (*document, error) { return docs[name], nil }
	_, err := expandPresets([]string{"a"}, map[string]bool{}, lookup)
	if err == nil || err.Error() != "preset b includes itself: a → b → c → b" {
		t.Errorf("got %v", err)
	}
	got, err := expandPresets([]string{"d"}, map[string]bool{}, lookup)
	if err != nil || !slices.Equal(got, []*document{docs["f"], docs["e"], docs["d"]}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Documents built in Go are held to the same rules, and several goroutines may merge one.
func TestMergeChecksGoDocuments(t *testing.T) {
	doc := mustSet(t, "paths.write", "out", "--rw out", "paths.write", "~x", "--rw ~x")
	_, _, err := Merge(Layered{Doc: doc, Layer: LayerCommand})
	if err == nil || !strings.HasPrefix(err.Error(), `--rw ~x: paths.write[1]: "~x": the home folder of another user`) {
		t.Errorf("got %v", err)
	}
	doc = mustSet(t, "paths.write", "out", "--rw out")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p, _, err := Merge(Layered{Doc: doc, Layer: LayerCommand})
			if err != nil {
				t.Error(err)
				return
			}
			if r := p.Paths[len(p.Paths)-1]; r.Path != "/here/out" || r.Origin.String() != "--rw out" {
				t.Errorf("got %+v", r)
			}
		})
	}
	wg.Wait()
	if _, _, err := Merge(Layered{}); err == nil {
		t.Error("a layer without a document merges")
	}
}

// mustSet returns a document of the folder /here with the values set: a field, a
// value and a source for each.
func mustSet(t *testing.T, values ...string) *Document {
	t.Helper()
	doc, err := ParseIn("flags", "/here", nil)
	if err != nil {
		t.Fatal(err)
	}
	for v := range slices.Chunk(values, 3) {
		if err := doc.Set(v[0], v[1], v[2]); err != nil {
			t.Fatal(err)
		}
	}
	return doc
}

// W2: all three policies of the environment can be written.
func TestEnvPolicies(t *testing.T) {
	for i, name := range envModeNames {
		p, _ := mustMerge(t, Layered{Doc: mustParse(t, "f", fmt.Sprintf("env: {policy: %s}", name)), Layer: LayerUser})
		if p.Env.Mode != EnvMode(i) {
			t.Errorf("%s gives %s", name, p.Env.Mode)
		}
	}
}

// N2: who decides about what is refused is said by the user's own policy, and by no
// project's, trusted or not: the hook runs outside of any sandbox.
func TestAskIsNotTheProjects(t *testing.T) {
	mine := mustParse(t, "user.yaml", "version: 1\nask: {hook: ~/bin/decide, timeout: 30s}")
	theirs := mustParse(t, "project.yaml", "version: 1\nask: {hook: /tmp/evil, timeout: 9h}")
	for _, untrusted := range []bool{false, true} {
		p, ignored, err := Merge(Layered{Doc: mine, Layer: LayerUser}, Layered{Doc: theirs, Layer: LayerProject, Untrusted: untrusted})
		if err != nil || p.Ask.Hook != "~/bin/decide" || p.Ask.Timeout != 30*time.Second || len(ignored) != 1 {
			t.Errorf("untrusted %v: %+v, ignored %v, %v", untrusted, p.Ask, ignored, err)
		}
	}
	for _, wrong := range []string{"ask: {hook: decide}", "ask: {timeout: unlimited}", "ask: {timeout: 0s}"} {
		if _, err := Parse("file.yaml", []byte("version: 1\n"+wrong)); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
