package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPresetsParse(t *testing.T) {
	for _, want := range []string{"workspace", "strict", "readonly", "open", "secrets", "caches", "data", "document", "go"} {
		if !slices.Contains(Presets(), want) {
			t.Errorf("there is no preset %s", want)
		}
	}
	for _, name := range Presets() {
		if _, err := preset(name); err != nil {
			t.Error(err)
		}
		p, err := FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.Require != Strict || p.Backend.Fallback != FallbackRefuse || p.Privileged || p.Disabled {
			t.Errorf("preset %s weakens the enforcement", name)
		}
	}
	if _, err := preset("nope/../x"); err == nil {
		t.Error("an unknown preset is found")
	}
}

// Each secret is hidden, may be missing, and says why it is hidden.
func TestSecrets(t *testing.T) {
	doc, err := preset("secrets")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range doc.Paths.Hide {
		if !e.Optional || e.Reason == "" {
			t.Errorf("%s: optional is %v, the reason is %q", e.Path, e.Optional, e.Reason)
		}
		if slices.Contains(paths, e.Path) {
			t.Errorf("%s is listed twice", e.Path)
		}
		paths = append(paths, e.Path)
	}
	for _, want := range []string{"~/.ssh", "~/.gnupg", "~/.aws", "~/.config/gcloud", "~/.azure", "~/.kube", "~/.docker/config.json", "~/.netrc",
		"~/.npmrc", "~/.pypirc", "~/.git-credentials", "~/.config/gh/hosts.yml", "~/.config/hub", "~/.mozilla", "~/.password-store",
		"~/.local/share/keyrings", "~/.bash_history", "~/.zsh_history", "/etc/ssh", "/etc/shadow"} {
		if !slices.Contains(paths, want) {
			t.Errorf("%s is not hidden", want)
		}
	}
	for _, name := range []string{"workspace", "strict", "readonly", "open"} {
		p, err := FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.Paths, func(r PathRule) bool { return r.Path == "~/.ssh" && r.Access == Hidden }) {
			t.Errorf("preset %s does not hide the secrets", name)
		}
	}
}

// F3: what each preset lets be written.
func TestPresetWritable(t *testing.T) {
	const ws, cache, data = "urn:cloche:workspace", "${XDG_CACHE_HOME:-~/.cache}", "${XDG_DATA_HOME:-~/.local/share}"
	for name, want := range map[string][]string{
		"workspace": {ws}, "strict": {ws}, "readonly": nil, "open": {cache, ws},
		"caches": {cache}, "data": {data}, "document": {"urn:cloche:document"}, "secrets": nil,
	} {
		p, err := FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range p.Paths {
			if r.Access == Write {
				got = append(got, r.Path)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s writes %q, want %q", name, got, want)
		}
	}
}

func TestWorkspace(t *testing.T) {
	p := Workspace("/src/app")
	i := slices.IndexFunc(p.Paths, func(r PathRule) bool { return r.Access == Write })
	if i < 0 || p.Paths[i].Path != "/src/app" || p.Paths[i].Origin.Source != "preset workspace" {
		t.Errorf("got %+v", p.Paths)
	}
	if p.Reads != ReadsHost || p.Network.Mode != NetworkNone || p.Env.Mode != EnvScrubbed ||
		p.Limits.Time != Unlimited || p.Limits.Processes != 4096 || p.Limits.OpenFiles != 65536 {
		t.Errorf("got %+v", p)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	// Copies share nothing.
	p.Paths[0].Path = "/changed"
	p.Limits.Origin["time"] = Origin{}
	again := Workspace("/src/app")
	if again.Paths[0].Path == "/changed" || again.Limits.Origin["time"].IsZero() {
		t.Error("a change of one policy reached another")
	}
	for _, dir := range []string{"", "src"} {
		if err := Workspace(dir).Validate(); err == nil {
			t.Errorf("the workspace %q is valid", dir)
		}
	}
}

func TestWith(t *testing.T) {
	base := Workspace("/w")
	before := base.Clone()
	p := base.With(
		AllowRead("/r", "?/r2"), AllowWrite("/x"), HidePaths("/h"), ProtectPaths("/w/.git"),
		AllowHosts("a.example:443"), Set("network.deny", "*.b.example"),
		WithEnv("A", "\xff\xfe"), WithEnv("A", "\xff"), PassEnv("LC_*"),
		WithLimits(Limits{Memory: 1 << 30}), WithLimits(Limits{Time: time.Minute}),
		AllowSocket("?/run/s"), WithBind("/b", "/c", true), WithPersist("~/.p"), Set("remap", "/workspace"),
		Set("tmp", "shared"), Set("home.value", "/h2"), Set("home.visible", "false"), Set("hosts", "x"), Set("reads", "system"), Set("env.policy", "list"),
		WithBackend("bwrap"), Set("fallback", "warn"), WithRequire(BestEffort), Set("allow_privileged", "true"), Set("enabled", "false"),
	)
	if !reflect.DeepEqual(base, before) {
		t.Error("With changed the policy it was called on")
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	rules := p.Paths[len(base.Paths):]
	want := []PathRule{
		{Path: "/r", Access: Read, Origin: goAPI}, {Path: "/r2", Access: Read, Optional: true, Origin: goAPI},
		{Path: "/x", Access: Write, Origin: goAPI}, {Path: "/h", Access: Hidden, Origin: goAPI},
		{Path: "/w/.git", Access: Read, Protect: true, Origin: goAPI},
	}
	if !reflect.DeepEqual(rules, want) {
		t.Errorf("rules are %+v", rules)
	}
	// W2: values that are not UTF-8 survive, and a variable has one value.
	if len(p.Env.Set) != 1 || p.Env.Set[0].Value != "\xff" {
		t.Errorf("variables are %+v", p.Env.Set)
	}
	if p.Network.Mode != NetworkUser || p.Network.Allow[0].Host != "a.example" || p.Network.Allow[0].Port != 443 || p.Network.Deny[0].Host != "*.b.example" {
		t.Errorf("network is %+v", p.Network)
	}
	if p.Limits.Time != time.Minute || p.Limits.Memory != 1<<30 || p.Limits.Processes != 4096 {
		t.Errorf("limits are %+v", p.Limits)
	}
	if !p.Disabled || !p.Privileged || p.Require != BestEffort || p.Backend.Name != "bwrap" || p.Backend.Fallback != FallbackWarn ||
		p.Reads != ReadsSystem || p.Tmp != TmpShared || p.Remap != "/workspace" || !p.Home.Hidden || p.Env.Mode != EnvList {
		t.Errorf("got %+v", p)
	}
	if q := p.With(WithNetwork(NetworkHost)); len(q.Network.Allow) != 0 || len(p.Network.Allow) != 1 {
		t.Error("another mode keeps the allowed hosts, or changes the original")
	}
}

func TestValidate(t *testing.T) {
	o := Origin{Layer: LayerUser, Source: "u", Line: 3}
	tests := []struct {
		name   string
		policy Policy
		want   string
	}{
		{"empty path", Policy{Paths: []PathRule{{}}}, `policy: paths.hide[0]: the path is empty; name a path, or remove the entry`},
		{"relative path", Policy{Paths: []PathRule{{Path: "a", Origin: o}}}, `u:3: paths.hide[0]: "a" is relative, and this policy has no folder of its own; write an absolute path, ~/a or urn:cloche:workspace/a`},
		{"access", Policy{Paths: []PathRule{{Path: "/a", Access: 9}}}, `policy: paths[0]: a rule has the access invalid(9), Protect false and Found false; use Hidden, Read or Write, Protect with Read, and Found with Hidden`},
		{"protect", Policy{Paths: []PathRule{{Path: "/a", Access: Write, Protect: true}}}, `policy: paths[0]: a rule has the access write, Protect true and Found false; use Hidden, Read or Write, Protect with Read, and Found with Hidden`},
		{"contradiction", Policy{Paths: []PathRule{{Path: "/a", Access: Write}, {Path: "/a/"}}}, `policy: paths.hide[0]: "/a" is already in paths.write; keep one of them`},
		{"reads", Policy{Reads: 5}, `policy: reads: unknown value 5 (known: system, host)`},
		{"mode", Policy{Network: Network{Mode: -1}}, `policy: network.mode: unknown value -1 (known: none, loopback, user, host)`},
		{"env mode", Policy{Env: Env{Mode: 7}}, `policy: env.policy: unknown value 7 (known: list, scrubbed, inherit)`},
		{"port", Policy{Network: Network{Mode: NetworkUser, Allow: []HostRule{{Host: "a", Port: 70000}}}}, `policy: network.allow[0]: "70000" is not a port; write a port from 1 to 65535, a range such as 8000-8010, or none for every port`},
		{"host", Policy{Network: Network{Deny: []HostRule{{Host: "a b"}}}}, `policy: network.deny[0]: "a b" is not a host; ` + hostForms},
		{"port in host", Policy{Network: Network{Deny: []HostRule{{Host: "a:1"}}}}, `policy: network.deny[0]: "a:1" holds a port; write host: a and port: 1`},
		{"allow without user", Policy{Network: Network{Allow: []HostRule{{Host: "a"}}}}, `policy: network.allow: a list of allowed hosts has no meaning with mode none; write mode: user, or remove the list`},
		{"deny with host", Policy{Network: Network{Mode: NetworkHost, Deny: []HostRule{{Host: "a"}}}}, `policy: network.deny: hosts cannot be denied with mode host, which shares the host's network unjudged; write mode: user, or require: best-effort`},
		{"bind", Policy{Binds: []Bind{{Source: "a"}}}, `policy: binds[0]: "a" is relative, and this policy has no folder of its own; write an absolute path, ~/a or urn:cloche:workspace/a`},
		{"socket", Policy{Sockets: []Socket{{Path: "/a*"}}}, `policy: sockets[0]: "/a*" holds *, ?, [ or {a,b}, and globs are not allowed here; write the path out`},
		{"variable", Policy{Env: Env{Set: []EnvSet{{Name: "A=B"}}}}, `policy: env.set.A=B: "A=B" is not a variable's name; write NAME alone, and its value under env.set`},
		{"limit", Policy{Limits: Limits{Memory: -2}}, `policy: limits.memory: -2 is below zero; write unlimited to take the limit away`},
		{"remap", Policy{Remap: "w"}, `policy: remap: "w" is not a plain absolute path; write a path such as /workspace`},
		{"test", Policy{Tests: []Test{{Action: "look"}}}, `policy: tests[0]: a test checks one action, and this has 0; write one of read, write, exec, connect`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.policy.Validate(); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero policy: %v", err)
	}
	many := Policy{Reads: 5, Tmp: 5, Remap: "w"}
	if err := many.Validate(); strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all errors are reported: %v", err)
	}
	// Rules of different sources do not contradict each other.
	if err := Workspace("/w").With(HidePaths("/w")).Validate(); err != nil {
		t.Error(err)
	}
}

// Clone has to copy every slice and map that Policy has, now and later.
func TestCloneIsDeep(t *testing.T) {
	var p Policy
	fill(reflect.ValueOf(&p).Elem())
	c := p.Clone()
	if !reflect.DeepEqual(p, c) {
		t.Fatal("the copy differs")
	}
	shared(t, "Policy", reflect.ValueOf(p), reflect.ValueOf(c))
}

// fill gives every slice and map one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	}
}

func shared(t *testing.T, name string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() {
				shared(t, name+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
		}
	case reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared between copies", name)
		}
	}
}

func BenchmarkWorkspace(b *testing.B) {
	for b.Loop() {
		Workspace("/w")
	}
}

// BenchmarkMerge is what a command pays for the presets when it starts.
func BenchmarkMerge(b *testing.B) {
	for b.Loop() {
		if _, _, err := Merge(); err != nil {
			b.Fatal(err)
		}
	}
}

func mustPreset(t *testing.T, name string) *document {
	t.Helper()
	doc, err := preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
