package starter_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cloche-dev/cloche/internal/starter"
	"github.com/cloche-dev/cloche/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// projects are folders, each as its files; a text after a name is what is in it.
var projects = map[string]map[string]string{
	"empty": {"notes.txt": ""},
	"go":    {"go.mod": "", "main.go": "", ".git/HEAD": ""},
	"node": {"package.json": "", "pnpm-lock.yaml": "", ".env": "", ".env.local": "", ".env.example": "",
		".npmrc": "registry=https://registry.npmjs.org/\n@corp:registry=https://ana:secret@npm.corp.example:8443/x/\n//npm.corp.example/:_authToken=secret\n"},
	"python": {"pyproject.toml": "", "requirements-dev.txt": "--extra-index-url https://pypi.corp.example/simple\nrequests\n", "uv.lock": ""},
	"rust":   {"Cargo.toml": "", "Cargo.lock": ""},
	"java":   {"pom.xml": "<project><repositories><repository><id>c</id><url>https://maven.corp.example/r</url></repository></repositories></project>", "build.gradle.kts": ""},
	"mixed": {"go.mod": "", "web/package.json": "", "web/package-lock.json": "", "web/.env": "", "tools/requirements.txt": "", "node_modules/x/Cargo.toml": "", "vendor/pom.xml": "",
		"CLAUDE.md": "", ".claude/settings.json": "{}", ".codex/config.toml": "",
		"compose.yaml": "services:\n  db:\n    image: postgres\n    ports:\n      - \"5432:5432\"\n      - 127.0.0.1:6379:6379/tcp\n      - '53:53/udp'\n"},
}

func inspect(t *testing.T, files map[string]string) starter.Findings {
	t.Helper()
	dir := fstest.MapFS{}
	for name, text := range files {
		dir[name] = &fstest.MapFile{Data: []byte(text)}
	}
	f, err := starter.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// F7: the policy of each kind of project is as recorded, and is one: it parses, and
// opens what the presets it names open, once it is trusted.
func TestPolicyGolden(t *testing.T) {
	for name, files := range projects {
		text := starter.Policy(inspect(t, files))
		golden := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != strings.ReplaceAll(string(want), "\r\n", "\n") {
			t.Errorf("%s: the policy is\n%s\nwant\n%s", name, text, want)
		}
		doc, err := policy.ParseIn(name, "/p", text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerProject})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// F7: an untrusted file of init's loosens nothing, and hides at once.
func TestPolicyUntrusted(t *testing.T) {
	doc, err := policy.ParseIn("p", "/p", starter.Policy(inspect(t, projects["node"])))
	if err != nil {
		t.Fatal(err)
	}
	p, ignored, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerProject, Untrusted: true})
	if err != nil || p.Network.Mode != policy.NetworkNone || len(ignored) == 0 {
		t.Errorf("network %s, ignored %v, %v", p.Network.Mode, ignored, err)
	}
	if !slices.ContainsFunc(p.Paths, func(r policy.PathRule) bool { return r.Path == "/p/.env" && r.Access == policy.Hidden }) {
		t.Error(".env is not hidden")
	}
}

// What files of a project say cannot get out of its place in the policy, nor carry
// a password there.
func TestHostileNames(t *testing.T) {
	files := map[string]string{
		"a\nnetwork: host\nb/go.mod": "", "a\u2028b/Cargo.toml": "", ".env.x\ny": "", ".env.$HOME": "", ".env.*": "", ".env.a b": "", "q\"x/.env": "",
		".npmrc":             "registry=https://ana:hunter2@good.example/\nregistry=https://bad\"]}host/\nregistry=http://[::1]:1/\nregistry=https://x y/\n",
		"requirements.txt":   "-i https://bad.example:99999999/\n",
		"compose.yml":        "- \"99999:1\"\n- \"0:1\"\n- \"80:80\"\n",
		"docker/compose.yml": strings.Repeat("x", 2<<20) + "\n- \"81:81\"\n",
	}
	text := string(starter.Policy(inspect(t, files)))
	settings := settingsOf(t, text)
	var hidden []policy.PathRule
	var network []string
	for _, s := range settings {
		if rule, ok := s.Value.(policy.PathRule); ok && s.Field == "paths.hide" {
			hidden = append(hidden, rule)
		}
		if strings.HasPrefix(s.Field, "network.") {
			network = append(network, fmt.Sprintf("%s %v", s.Field, s.Value))
		}
	}
	if len(network) != 1 || !strings.HasPrefix(network[0], "network.allow {good.example") {
		t.Errorf("the network is %q", network)
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "81") || !strings.Contains(text, "forward: [80]") {
		t.Errorf("the policy is\n%s", text)
	}
	for _, e := range hidden {
		if e.Path != "/p/.env.a b" {
			t.Errorf("%q is hidden", e.Path)
		}
	}
}

// settingsOf returns what a policy in the folder /p says.
func settingsOf(t *testing.T, text string) []policy.Setting {
	t.Helper()
	doc, err := policy.ParseIn("p", "/p", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	settings, err := doc.Settings()
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// Files of a project may be a stranger's: what they name is not allowed if it is an
// address or no public name, and both the policy and its text say so.
func TestDoubtfulHosts(t *testing.T) {
	for _, host := range []string{
		"169.254.169.254", "127.0.0.1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "0x7f.1", "2130706433", "127.1", "localhost", "app.localhost", "router", "metadata.google.internal",
		"printer.local", "nas.lan", "git.corp", "169.254.169.254.nip.io", "LOCALHOST", "metadata.google.internal.",
	} {
		f := inspect(t, map[string]string{".npmrc": "registry=https://" + host + "/\n", "package.json": ""})
		text := string(starter.Policy(f))
		allows := func(s policy.Setting) bool { return s.Field == "network.allow" }
		if slices.ContainsFunc(settingsOf(t, text), allows) {
			t.Errorf("%s is allowed:\n%s", host, text)
		}
		if len(f.Doubtful) != 1 || !strings.Contains(text, "# Not allowed: .npmrc names "+host) {
			t.Errorf("%s is left out without a word:\n%s", host, text)
		}
	}
}
