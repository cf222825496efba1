package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

// parseFlags returns the policy that flags make, and their errors.
func parseFlags(t *testing.T, args ...string) (policy.Policy, error) {
	t.Helper()
	var s sessionFlags
	c := &cobra.Command{Use: "x"}
	s.add(c)
	if err := c.ParseFlags(args); err != nil {
		return policy.Policy{}, err
	}
	doc, err := s.commandDocument("/base")
	if err != nil || doc == nil {
		return policy.Policy{}, err
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerCommand})
	return p, err
}

// every policy flag with a value that works.
var flagValues = map[string]string{
	"preset": "strict,caches", "ro": "?./in", "rw": "./out", "hide": "~/x", "protect": ".git/hooks", "bind": "a:/b:ro",
	"persist": "~/.cache/x", "remap": "/workspace", "tmp": "shared", "net": "user", "allow": "*.example.com:443",
	"deny": "192.0.2.0/24", "publish": "0.0.0.0:8080:80", "forward": "53/udp", "socket": "/run/x.sock", "secret": "gh", "env": "A=b", "env-policy": "list", "timeout": "90s", "max-output": "10MiB",
	"memory": "1GiB", "pids": "64", "open-files": "128", "file-size": "1MiB", "backend": "bwrap", "fallback": "warn", "denials": "thorough",
}

// F4, L1: each flag becomes a rule whose origin is the flag as typed.
func TestFlagsAreOrigins(t *testing.T) {
	var args, want []string
	for _, spec := range policyFlags {
		if spec.bare() {
			args = append(args, "--"+spec.name)
			continue
		}
		value, ok := flagValues[spec.name]
		if !ok {
			t.Errorf("no value for --%s", spec.name)
			continue
		}
		args = append(args, "--"+spec.name, value)
		if !slices.Contains([]string{"preset", "fallback", "env"}, spec.name) { // no origin, or one without the value
			want = append(want, "--"+spec.name+" "+value)
		}
	}
	p, err := parseFlags(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, r := range rulesOf(p) {
		have = append(have, r.Origin.Source)
	}
	for _, source := range append(want, "--env A=…") {
		if !slices.Contains(have, source) {
			t.Errorf("no rule has the origin %q", source)
		}
	}
	if p.Require != policy.BestEffort || p.Backend.Fallback != policy.FallbackWarn {
		t.Errorf("require %v, fallback %v", p.Require, p.Backend.Fallback)
	}
}

func TestFlagMeanings(t *testing.T) {
	p, err := parseFlags(t, "--rw", "?./out", "--allow", "example.com", "--env", "PASS", "--env", "SET=a=b", "--bind", "?src:/dst:ro")
	if err != nil {
		t.Fatal(err)
	}
	rule := p.Paths[len(p.Paths)-1]
	if rule.Path != "/base/out" || !rule.Optional || rule.Access != policy.Write {
		t.Errorf("--rw ?./out became %+v", rule)
	}
	if p.Network.Mode != policy.NetworkUser {
		t.Errorf("--allow alone: the network is %v, want user", p.Network.Mode)
	}
	if len(p.Env.Pass) != 1 || p.Env.Pass[0].Name != "PASS" || len(p.Env.Set) != 1 || p.Env.Set[0].Value != "a=b" {
		t.Errorf("environment %+v", p.Env)
	}
	if b := p.Binds[0]; b.Source != "/base/src" || b.Target != "/dst" || !b.ReadOnly || !b.Optional {
		t.Errorf("--bind became %+v", b)
	}
}

func TestFlagErrorsNameTheFlag(t *testing.T) {
	for _, args := range [][]string{
		{"--net", "all"}, {"--tmp", "both"}, {"--timeout", "5"}, {"--memory", "lots"}, {"--pids", "0"}, {"--bind", "a:b:c:d"},
		{"--allow", "ftp://example.com"}, {"--net", "none:veth"}, {"--publish", "web"}, {"--forward", "127.0.0.1:80"}, {"--deny", "127.1"}, {"--env", "=x"}, {"--env-policy", "some"}, {"--fallback", "run"}, {"--rw", ""}, {"--preset", "nope"},
		{"--persist", ""}, {"--remap", "relative"}, {"--socket", ""},
	} {
		_, err := parseFlags(t, args...)
		if err == nil {
			t.Errorf("%v: no error", args)
		} else if !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: the error does not name the flag: %v", args, err)
		}
	}
}

// N14: what somebody writes in place of a source may be the value itself. No error and no origin
// repeats it.
func TestSecretFlagKeepsQuiet(t *testing.T) {
	const value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, text := range []string{"TOKEN@api.example.com=" + value, "TOKEN=" + value, "gh=" + value, "TOKEN@*=file:" + value} {
		_, err := parseFlags(t, "--secret", text)
		if err == nil || strings.Contains(err.Error(), value) || !strings.Contains(err.Error(), "--secret "+strings.Split(text, "=")[0]+"=…") {
			t.Errorf("%s: %v", text, err)
		}
	}
	p, err := parseFlags(t, "--secret", "TOKEN@api.example.com=command:x "+value)
	if err != nil || len(p.Secrets) != 1 || p.Secrets[0].Origin.Source != "--secret TOKEN@api.example.com=…" || p.Network.Mode != policy.NetworkUser {
		t.Errorf("%+v, %v", p.Secrets, err)
	}
}

// visit calls f for each command of the tree.
func visit(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		visit(sub, f)
	}
}

// Every help says what the command is for, shows an example, and fits 80 columns.
func TestHelpIsComplete(t *testing.T) {
	visit(Root(), func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: Short, Long or Example is missing", c.CommandPath())
		}
		var b bytes.Buffer
		writeHelp(&b, c)
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 84 {
				t.Errorf("%s: a line of the help has %d columns: %q", c.CommandPath(), n, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(b.String(), FlagSyntax(f)) {
				t.Errorf("%s: the help lacks --%s", c.CommandPath(), f.Name)
			}
			if f.Name != "help" && GroupOf(f) == groupOther {
				t.Errorf("%s: --%s is in no group", c.CommandPath(), f.Name)
			}
		})
	})
}

// A tree that was built for one command knows the same flags as the whole.
func TestLazyTree(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard, words: newWords(io.Discard)}
	for _, m := range makers() {
		lazy := a.root([]string{m.name})
		if m.name != "completion" && len(lazy.Commands()) != 1 {
			t.Errorf("%s: %d commands were built", m.name, len(lazy.Commands()))
		}
		if c, _, err := lazy.Find([]string{m.name}); err != nil || c.Name() != m.name {
			t.Errorf("%s: found %v, %v", m.name, c.Name(), err)
		}
	}
}

// examples returns the command lines of all help texts.
func examples(t *testing.T) [][]string {
	t.Helper()
	var out [][]string
	visit(Root(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			words := strings.Fields(line)
			if strings.Contains(line, "'") {
				var err error
				if words, err = docWords(strings.TrimSpace(line)); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
			out = append(out, words)
		}
	})
	return out
}

// Every example is accepted; those that run no command of the user's really run.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ws/.cloche.yaml": "version: 1\n", "ws/strict.yaml": "version: 1\n", "ws/service/go.mod": "module service\n", "ws/.claude/settings.json": `{"permissions": {}}`, "ws/srt-settings.json": `{"network": {}}`, "ws/config.toml": "", "shared/x": ""} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", filepath.Join(dir, "home"))
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Chdir(filepath.Join(dir, "ws"))
	startLog(t)
	for _, line := range examples(t) {
		t.Run(strings.Join(line, " "), func(t *testing.T) {
			if line[0] != "cloche" {
				t.Fatal("an example does not call cloche")
			}
			parseExample(t, line[1:])
			if !waits(line) {
				runExample(t, line[1:])
			}
		})
	}
}

// waits reports whether an example runs a command of the user's, serves, or is
// about a request, a grant or a review that somebody has to make first.
func waits(line []string) bool {
	switch line[1] {
	case "run", "shell", "learn", "mcp", "hook", "review", "disable": // which would be in force for the examples after it
		return true
	case "agent":
		return len(line) > 2 && (line[2] == "run" || line[2] == "exec")
	case "approve", "grants":
		return slices.Contains(line, "k3xq7a")
	}
	return false
}

// startLog makes an audit log, which an example verifies.
func startLog(t *testing.T) {
	t.Helper()
	dirs, err := machine.OwnDirs()
	if err != nil {
		t.Fatal(err)
	}
	if err := record(dirs, audit.Event{Kind: audit.Trust, Subject: "/x/.cloche.yaml", Verdict: "trust"}); err != nil {
		t.Fatal(err)
	}
}

func parseExample(t *testing.T, args []string) {
	t.Helper()
	c, rest, err := Root().Find(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Error(err)
	}
}

// runExample runs an example. Its answer may be no (1): what is denied, what
// the machine lacks.
func runExample(t *testing.T, args []string) {
	t.Helper()
	var out, words bytes.Buffer
	a := &app{out: &out, err: &words, words: newWords(&words)}
	if status := a.main(args); status > statusDenied {
		t.Errorf("status %d\n%s", status, words.String())
	}
}
