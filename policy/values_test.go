package policy

import (
	"slices"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]size{
		"1": 1, "1B": 1, "512k": 512 << 10, "512K": 512 << 10, "10MB": 10e6, "10mib": 10 << 20, "4GiB": 4 << 30, "4 GiB": 4 << 30,
		"1.5GiB": 3 << 29, "2T": 2 << 40, "1kB": 1000, "unlimited": Unlimited,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "0", "-1", "k", "4XB", "1e3", "0x10", "9999999TiB", "99999999999999999999", "1_000", "0.1B", "NaN", "Inf", ".k", "1.GiBx"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("%q reads as %d", bad, got)
		}
	}
}

// The text of each unit reads back as the same value.
func TestUnitsRoundTrip(t *testing.T) {
	for _, s := range []size{1, 1000, 1024, 1536 << 20, 4 << 30, 10e6, Unlimited} {
		if got, err := parseSize(s.String()); err != nil || got != s {
			t.Errorf("%s: got %d, %v", s, got, err)
		}
	}
	for _, d := range []duration{Unlimited, duration(time.Second), duration(10 * time.Minute), duration(time.Hour), duration(90 * time.Minute), duration(time.Hour + time.Second), 1} {
		if got, err := parseDuration(d.String()); err != nil || got != d {
			t.Errorf("%s: got %d, %v", d, got, err)
		}
	}
	if s := duration(10 * time.Minute).String(); s != "10m" {
		t.Errorf("ten minutes are %s", s)
	}
	for _, bad := range []string{"", "0", "0s", "-1s", "10", "x", "1d"} {
		if got, err := parseDuration(bad); err == nil {
			t.Errorf("%q reads as %s", bad, got)
		}
	}
	for _, bad := range []string{"", "0", "-1", "1.5", "many", "99999999999999999999"} {
		if got, err := parseCount(bad); err == nil {
			t.Errorf("%q reads as %s", bad, got)
		}
	}
}

// W1
func TestParseCapabilities(t *testing.T) {
	doc, err := ParseCapabilities("caps.json", []byte(`{
  "net": false,
  "write_paths": ["cwd", "~/out"],
  "read_paths": ["/data", "cwd", "~/out"],
  "env": {"vars": ["PATH", "CI"]}
}`))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := mustMerge(t, Layered{Doc: mustParse(t, "u", "presets: [open]"), Layer: LayerUser}, Layered{Doc: doc, Layer: LayerCommand})
	if p.Network.Mode != NetworkNone || p.Network.Origin.String() != "caps.json:2" || p.Reads != ReadsSystem || p.Env.Mode != EnvList {
		t.Errorf("got %+v", p)
	}
	var write, read []string
	for _, r := range p.Paths {
		switch r.Access {
		case Write:
			write = append(write, r.Path)
		case Read:
			read = append(read, r.Path)
		}
	}
	if !slices.Equal(write, []string{"cwd", "~/out", "cwd"}) || !slices.Equal(read, []string{"/data"}) {
		t.Errorf("writes %q, reads %q", write, read)
	}
	if len(p.Env.Pass) != 2 || p.Env.Pass[1].Name != "CI" || p.Env.Pass[1].Origin.Line != 5 {
		t.Errorf("passes %+v", p.Env.Pass)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

// W1: what is not said has the defaults of the declaration.
func TestCapabilityDefaults(t *testing.T) {
	for text, want := range map[string]EnvMode{`{}`: EnvScrubbed, ``: EnvScrubbed, `{"env": "scrubbed"}`: EnvScrubbed, `{"env": "inherit"}`: EnvInherit, `{"env": {"vars": []}}`: EnvList} {
		doc, err := ParseCapabilities("c", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p, _ := mustMerge(t, Layered{Doc: doc, Layer: LayerCommand})
		if p.Network.Mode != NetworkHost || p.Reads != ReadsHost || p.Env.Mode != want {
			t.Errorf("%s: network %s, reads %s, env %s", text, p.Network.Mode, p.Reads, p.Env.Mode)
		}
		if last := p.Paths[len(p.Paths)-1]; last.Path != "cwd" || last.Access != Write {
			t.Errorf("%s: the working folder is not writable: %+v", text, last)
		}
	}
}

// W1 N3
func TestCapabilityHosts(t *testing.T) {
	doc, err := ParseCapabilities("c", []byte("{\"net\": {\"hosts\": [\n\"a.example:443\", {\"host\": \"b.example\", \"methods\": [\"GET\"]}]}}"))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := mustMerge(t, Layered{Doc: doc, Layer: LayerCommand})
	if n := p.Network; n.Mode != NetworkUser || len(n.Allow) != 2 || n.Allow[0].Origin.String() != "c:2" || n.Allow[1].Methods[0] != "GET" {
		t.Errorf("got %+v", n)
	}
	for text, want := range map[string]NetworkMode{`{"net": true}`: NetworkHost, `{"net": false}`: NetworkNone, `{"net": {"hosts": []}}`: NetworkUser, `{"net": {}}`: NetworkUser} {
		doc, err := ParseCapabilities("c", []byte(text))
		if err != nil || *doc.content.Network.Mode != want || len(doc.content.Network.Allow) != 0 {
			t.Errorf("%s: %+v, %v", text, doc, err)
		}
	}
}

func TestCapabilityErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"network": true}`:             `c:1:2: network: unknown key; known here: env, net, read_paths, write_paths`,
		`{"writepaths": []}`:            `c:1:2: writepaths: unknown key; did you mean "write_paths"?`,
		`{"net": "yes"}`:                `c:1:9: net: must be true, false or {"hosts": […]}, not a text`,
		`{"net": {"hosts": ["::1"]}}`:   `c:1:20: net.hosts[0]: "::1" is the host's loopback, which no rule for hosts opens; forward its ports one by one: forward: [PORT], or --forward PORT`,
		`{"write_paths": ["out"]}`:      `c:1:18: write_paths[0]: "out" is relative, and this policy has no folder of its own; write an absolute path, ~/out or urn:cloche:workspace/out`,
		`{"read_paths": ["cwd", ""]}`:   `c:1:24: read_paths[1]: the path is empty; name a path, or remove the entry`,
		`{"env": "all"}`:                `c:1:9: env: "all" is not one of scrubbed, inherit, {"vars": […]}`,
		`{"env": {}}`:                   `c:1:2: env: names no variables; write {"vars": ["NAME"]}`,
		`{"env": {"vars": ["A", "*"]}}`: `c:1:24: env.vars[1]: "*" is every variable; write env policy inherit`,
		`[]`:                            `c:1:1: must be a mapping, not a list`,
	} {
		if _, err := ParseCapabilities("c", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"write", "read", "hide", "protect"}
	for word, want := range map[string]string{"wirte": "write", "reads": "read", "Hide": "hide", "protekt": "protect", "x": "", "deny": "", "allow": ""} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
