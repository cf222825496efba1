package policy

import (
	"slices"
	"strings"
	"testing"
)

// tools are the presets for toolchains and agents.
func tools() []string {
	return slices.DeleteFunc(Presets(), func(n string) bool { return !isTool(n) })
}

// F3: a preset for a tool says why for each of its entries, breaks nothing where
// the tool is not installed, reaches hosts by their names on one port, and adds to
// a base without being one.
func TestToolPresets(t *testing.T) {
	want := []string{"aider", "amp", "browser", "c", "claude", "cline", "codex", "continue", "copilot", "crush", "cursor", "gemini", "go", "java", "mysql", "node", "opencode", "postgres", "python", "qwen", "redis", "rust"}
	if got := tools(); !slices.Equal(got, want) {
		t.Fatalf("the tools are %q, want %q", got, want)
	}
	for _, name := range want {
		doc := mustPreset(t, name)
		if doc.Reads != nil || doc.Limits != nil || doc.Network != nil && doc.Network.Mode != nil || doc.Env.Policy != nil || len(doc.Presets) > 0 {
			t.Errorf("%s says what a base says", name)
		}
		if doc.Paths != nil {
			for _, e := range slices.Concat(doc.Paths.Write, doc.Paths.Read, doc.Paths.Protect) {
				if !e.Optional || e.Reason == "" {
					t.Errorf("%s: %s is not optional, or has no reason", name, e.Path)
				}
			}
			if len(doc.Paths.Hide) > 0 {
				t.Errorf("%s hides something: a tool only adds", name)
			}
		}
		if doc.Network == nil {
			continue
		}
		for _, h := range doc.Network.Allow {
			if h.Reason == "" || h.Port.First != 443 || h.Port.Last != 0 || strings.Contains(h.Host, "*") {
				t.Errorf("%s: %s has no reason, or is more than one host and port", name, h.Host)
			}
		}
	}
}

// F3: tools stand on the default unless a base is named, in any order of the names.
func TestToolPresetsCompose(t *testing.T) {
	tests := []struct {
		names   []string
		reads   Reads
		mode    NetworkMode
		ws      bool
		allowed []string
	}{
		{[]string{"go"}, ReadsHost, NetworkUser, true, []string{"proxy.golang.org"}},
		{[]string{"go", "node"}, ReadsHost, NetworkUser, true, []string{"proxy.golang.org", "registry.npmjs.org"}},
		{[]string{"node", "claude", "go"}, ReadsHost, NetworkUser, true, []string{"registry.npmjs.org", "api.anthropic.com", "sum.golang.org"}},
		{[]string{"strict", "go"}, ReadsSystem, NetworkUser, true, []string{"proxy.golang.org"}},
		{[]string{"go", "strict"}, ReadsSystem, NetworkUser, true, []string{"proxy.golang.org"}},
		{[]string{"rust", "readonly"}, ReadsHost, NetworkUser, false, []string{"index.crates.io"}},
		{[]string{"caches", "python"}, ReadsHost, NetworkUser, true, []string{"pypi.org"}},
		{[]string{"java", "open"}, ReadsHost, NetworkHost, true, nil},
	}
	for _, tt := range tests {
		p, err := FromPreset(tt.names...)
		if err != nil {
			t.Fatal(err)
		}
		ws := slices.ContainsFunc(p.Paths, func(r PathRule) bool { return r.Path == "urn:cloche:workspace" && r.Access == Write })
		if p.Reads != tt.reads || p.Network.Mode != tt.mode || ws != tt.ws {
			t.Errorf("%q: reads %s, network %s, workspace %v", tt.names, p.Reads, p.Network.Mode, ws)
		}
		for _, host := range tt.allowed {
			if !slices.ContainsFunc(p.Network.Allow, func(r HostRule) bool { return r.Host == host && r.Port == 443 }) {
				t.Errorf("%q: %s is not allowed", tt.names, host)
			}
		}
		if tt.allowed == nil && len(p.Network.Allow) > 0 {
			t.Errorf("%q: allows %v", tt.names, p.Network.Allow)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%q: %v", tt.names, err)
		}
	}
	// Without a tool nothing is added.
	if p, err := FromPreset("caches"); err != nil || p.Reads != ReadsSystem {
		t.Errorf("caches alone: reads %s, %v", p.Reads, err)
	}
}

// F7: what a file says about the network holds, whatever its tools would need, and
// an untrusted file gets nothing by naming one.
func TestToolPresetsBelowFiles(t *testing.T) {
	doc, err := Parse("u", []byte("presets: [go]\nnetwork: none\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := Merge(Layered{Doc: doc, Layer: LayerUser})
	if err != nil || p.Network.Mode != NetworkNone || len(p.Network.Allow) > 0 {
		t.Errorf("network is %+v, %v", p.Network, err)
	}
	project, err := Parse("p", []byte("presets: [claude]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, ignored, err := Merge(Layered{Doc: project, Layer: LayerProject, Untrusted: true})
	if err != nil || p.Network.Mode != NetworkNone || len(p.Network.Allow) > 0 || len(p.Persist) > 0 || len(ignored) == 0 {
		t.Errorf("network is %+v, persisted are %v, ignored %d, %v", p.Network, p.Persist, len(ignored), err)
	}
	for _, r := range p.Paths {
		if r.Origin.Source == "preset claude" && !r.Origin.Untrusted {
			t.Errorf("%s is trusted", r.Path)
		}
	}
}

// F3: the preset of a database opens the socket and the port of that one server, for trusted
// files only, and shows no password.
func TestDatabasePresets(t *testing.T) {
	for name, want := range map[string]struct {
		socket string
		port   int
	}{"postgres": {"/run/postgresql/.s.PGSQL.5432", 5432}, "mysql": {"/run/mysqld/mysqld.sock", 3306}, "redis": {"/run/redis/redis-server.sock", 6379}} {
		p, err := FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Sockets) != 1 || p.Sockets[0].Path != want.socket || !p.Sockets[0].Optional {
			t.Errorf("%s: sockets are %+v", name, p.Sockets)
		}
		if f := p.Network.Forward; len(f) != 1 || f[0].Host != want.port || f[0].Inside != want.port || len(p.Network.Allow) > 0 || p.Network.Mode != NetworkNone {
			t.Errorf("%s: network is %+v", name, p.Network)
		}
		if slices.ContainsFunc(p.Paths, func(r PathRule) bool { return r.Origin.Source == "preset "+name }) {
			t.Errorf("%s has a rule for a path", name)
		}
		project, err := Parse("p", []byte("presets: ["+name+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err = Merge(Layered{Doc: project, Layer: LayerProject, Untrusted: true})
		if err != nil || len(p.Sockets) > 0 || len(p.Network.Forward) > 0 || p.Network.Mode != NetworkNone {
			t.Errorf("an untrusted %s: sockets %v, network %+v, %v", name, p.Sockets, p.Network, err)
		}
	}
}

// L6: each agent can use its own login and transcripts, which are hidden from all
// others, by a rule for the very path that the preset secrets has.
func TestAgentsOpenTheirOwn(t *testing.T) {
	for agent, folders := range map[string][]string{
		"claude": {".claude"}, "codex": {".codex"}, "gemini": {".gemini"}, "opencode": {".local/share/opencode"}, "aider": {".aider"},
		"cline": {".cline"}, "copilot": {".copilot"}, "continue": {".continue"}, "qwen": {".qwen"}, "amp": {".amp", ".config/amp", ".local/share/amp"},
		"crush": {".crush", ".config/crush", ".local/share/crush"}, "cursor": {".cursor/", ".config/cursor"},
	} {
		p, err := FromPreset(agent)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Paths {
			own := slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(r.Path, "~/"+f) || strings.Contains(r.Path, ":-~/"+f) })
			if r.Access != Hidden || r.Found || !own {
				continue
			}
			opened := slices.ContainsFunc(p.Paths, func(o PathRule) bool {
				return o.Path == r.Path && o.Access > Hidden && o.Origin.Layer > r.Origin.Layer
			})
			if !opened {
				t.Errorf("%s: its own %s stays hidden", agent, r.Path)
			}
		}
	}
}

func TestCreateEntries(t *testing.T) {
	for text, want := range map[string]string{
		"paths: {write: [{path: /a, create: true}]}":     "",
		"paths: {read: [{path: /a, create: true}]}":      `"/a" is to be made, and only what may be written is`,
		"paths: {hide: [{path: /a, create: true}]}":      `"/a" is to be made, and only what may be written is`,
		"paths: {write: [{path: '/a/*', create: true}]}": `"/a/*" is to be made, and is a glob`,
	} {
		_, err := Parse("f", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
