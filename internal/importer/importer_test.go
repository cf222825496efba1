package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/policyfile"
	"github.com/cloche-dev/cloche/policy"
)

// A want is what an imported policy has to say.
type want struct {
	reads, writes, hidden, protected, allow, deny, sockets, pass, set []string
	workspace                                                         bool
	mode                                                              policy.NetworkMode
	env                                                               policy.EnvMode
	unmatched                                                         []string
}

const ws = "urn:cloche:workspace"

var cases = []struct {
	name string
	from Source
	text string
	want want
}{
	{"srt empty", SandboxRuntime, `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":[],"denyWrite":[]}}`,
		want{env: policy.EnvInherit}},
	{"srt usual", SandboxRuntime, `{
  "network": {"allowedDomains": ["github.com", "*.npmjs.org", "api.example.com:443"], "deniedDomains": ["evil.example"], "allowUnixSockets": ["/var/run/docker.sock"], "allowLocalBinding": true,
    "deniedResolvedAddresses": ["10.0.0.0/8"]},
  "filesystem": {"denyRead": ["~/.ssh", "secrets/", "**/.env"], "allowRead": ["secrets/public"], "allowWrite": [".", "/tmp", "~/data/**"], "denyWrite": [".git/hooks", "*.lock"]}}`,
		want{env: policy.EnvInherit, mode: policy.NetworkUser, workspace: true, writes: []string{"~/data"}, reads: []string{ws + "/secrets/public"},
			hidden: []string{"~/.ssh", ws + "/secrets", "**/.env"}, protected: []string{ws + "/.git/hooks", ws + "/*.lock"},
			allow: []string{"github.com", "*.npmjs.org", "api.example.com:443"}, deny: []string{"evil.example", "10.0.0.0/8"}, sockets: []string{"/var/run/docker.sock"}}},
	{"srt odd", SandboxRuntime, `{"network":{"allowedDomains":["localhost","http://x.example/","a b"],"allowAllUnixSockets":true,"mitmProxy":{},"allowLocalBinding":true},
  "filesystem":{"allowWrite":["src/*.go","../x","~bob/x"],"denyWrite":["."],"disabled":true,"allowGitConfig":true},"ignoreViolations":{"*":["/x"]},"newThing":1,"allowPty":false}`,
		want{env: policy.EnvInherit, mode: policy.NetworkUser, allow: []string{"http://x.example/"}, protected: []string{ws},
			unmatched: []string{"network.allowedDomains", "network.allowAllUnixSockets", "network.mitmProxy", "filesystem.allowWrite", "filesystem.disabled", "filesystem.allowGitConfig", "ignoreViolations", "newThing"}}},
	{"srt loopback", SandboxRuntime, `{"network":{"allowLocalBinding":true}}`, want{env: policy.EnvInherit, mode: policy.NetworkLoopback}},
	{"srt conflict", SandboxRuntime, `{"filesystem":{"allowWrite":["x","y"],"denyWrite":["x"],"denyRead":["y","z"],"allowRead":["z"]}}`,
		want{env: policy.EnvInherit, protected: []string{ws + "/x"}, hidden: []string{ws + "/y"}, reads: []string{ws + "/z"}}},
	{"srt credentials", SandboxRuntime, `{"credentials":{"files":[{"path":"~/.aws","mode":"deny"},{"path":"~/.npmrc","mode":"mask"}],"envVars":[{"name":"X","mode":"deny"}]}}`,
		want{env: policy.EnvScrubbed, hidden: []string{"~/.aws", "~/.npmrc"}, unmatched: []string{"credentials.files ~/.npmrc"}}},
	{"claude rules", ClaudeCode, `{"permissions":{
  "allow":["Bash(npm run:*)","Read(~/.zshrc)","Edit(//srv/data/**)","WebFetch(domain:example.com)","WebFetch","mcp__x__y","WebSearch"],
  "deny":["Read(./.env)","Read(secrets/**)","Read(*.pem)","Edit(/infra/**)","Bash(curl:*)","WebFetch(domain:evil.example)","Read(//etc/passwd)"],
  "ask":["Edit(package.json)","Bash(git push:*)"],"additionalDirectories":["../docs","/srv/docs"],"defaultMode":"acceptEdits"},
  "env":{"CI":"1","API_KEY":"x","bad name":"y"},"hooks":{}}`,
		want{env: policy.EnvScrubbed, workspace: true, mode: policy.NetworkUser, reads: []string{"~/.zshrc"}, writes: []string{"/srv/data", "/srv/docs"},
			hidden: []string{ws + "/.env", ws + "/secrets", "**/*.pem", "/etc/passwd"}, protected: []string{ws + "/infra", "**/package.json"},
			allow: []string{"example.com:443"}, deny: []string{"evil.example"}, set: []string{"CI=1"},
			unmatched: []string{"permissions.allow Bash(npm run:*)", "permissions.allow WebFetch", "permissions.allow mcp__x__y", "permissions.allow WebSearch", "permissions.deny Bash(curl:*)",
				"permissions.ask Edit(package.json)", "permissions.ask Bash(git push:*)", "permissions.additionalDirectories", "permissions.defaultMode acceptEdits", "env.API_KEY", "env.bad name"}}},
	{"claude sandbox", ClaudeCode, `{"sandbox":{"enabled":true,"autoAllowBashIfSandboxed":true,"excludedCommands":["docker"],"allowUnsandboxedCommands":false,
  "network":{"allowedDomains":["github.com"],"allowUnixSockets":["~/.ssh/agent"]},"filesystem":{"denyRead":["~/.aws"]},"enableWeakerNestedSandbox":true}}`,
		want{env: policy.EnvScrubbed, workspace: true, mode: policy.NetworkUser, allow: []string{"github.com"}, hidden: []string{"~/.aws"}, sockets: []string{"~/.ssh/agent"},
			unmatched: []string{"sandbox.autoAllowBashIfSandboxed", `sandbox.excludedCommands ["docker"]`, "sandbox.enableWeakerNestedSandbox"}}},
	{"claude plan", ClaudeCode, `{"permissions":{"defaultMode":"plan"}}`, want{env: policy.EnvScrubbed}},
	{"codex empty", Codex, ``, want{env: policy.EnvScrubbed, workspace: true}},
	{"codex read-only", Codex, `sandbox_mode = "read-only"
[sandbox_workspace_write]
writable_roots = ["/x"]
network_access = true`, want{env: policy.EnvScrubbed}},
	{"codex write", Codex, `model = "m"
sandbox_mode = "workspace-write"
approval_policy = "never"
[sandbox_workspace_write]
writable_roots = [
  "/srv/out", # a comment
  "~/.cache/x",
]
network_access = true
exclude_slash_tmp = true
new_key = 1
[shell_environment_policy]
inherit = "none"
include_only = ["PATH", "LC_*", "*_X"]
set = { CI = "1", MY_TOKEN = "x" }
[mcp_servers.x]
command = "y"`, want{env: policy.EnvList, workspace: true, mode: policy.NetworkUser, writes: []string{"/srv/out", "~/.cache/x"}, allow: []string{"*"}, pass: []string{"PATH", "LC_*"}, set: []string{"CI=1"},
		unmatched: []string{"sandbox_workspace_write.network_access", "shell_environment_policy.include_only *_X", "shell_environment_policy.set.MY_TOKEN", "approval_policy", "sandbox_workspace_write.new_key"}}},
	{"codex all variables", Codex, "[shell_environment_policy]\ninherit = \"all\"\nignore_default_excludes = true\n", want{env: policy.EnvInherit, workspace: true,
		unmatched: []string{"shell_environment_policy.ignore_default_excludes"}}},
	{"codex excluded", Codex, "[shell_environment_policy]\ninherit = \"all\"\nexclude = [\"X_*\"]\n", want{env: policy.EnvScrubbed, workspace: true, unmatched: []string{"shell_environment_policy.exclude"}}},
	{"codex unknown mode", Codex, `sandbox_mode = "new"`, want{env: policy.EnvScrubbed, unmatched: []string{"sandbox_mode new"}}},
	{"codex full", Codex, `sandbox_mode = "danger-full-access"`, want{env: policy.EnvScrubbed, workspace: true, mode: policy.NetworkHost,
		writes: []string{"${XDG_CACHE_HOME:-~/.cache}"}, unmatched: []string{"sandbox_mode danger-full-access"}}},
}

// F7: settings mean as a policy what they meant, and what has no equal is named.
func TestImport(t *testing.T) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Import(tt.from, "dir/settings", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			doc, err := policy.Parse("p", r.Policy)
			if err != nil {
				t.Fatalf("%v\n%s", err, r.Policy)
			}
			p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
			if err == nil {
				err = p.Validate()
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, r.Policy)
			}
			compare(t, p, tt.want)
			var unmatched []string
			for _, u := range r.Unmatched {
				if unmatched = append(unmatched, u.Setting); u.Reason == "" || !strings.Contains(string(r.Policy), policyfile.Comment(u.Setting)) {
					t.Errorf("%s has no reason, or is not in the policy", u.Setting)
				}
			}
			slices.Sort(unmatched)
			if got := slices.Compact(unmatched); !slices.Equal(got, slices.Sorted(slices.Values(tt.want.unmatched))) {
				t.Errorf("without an equal are\n%q, want\n%q", got, tt.want.unmatched)
			}
		})
	}
}

func compare(t *testing.T, p policy.Policy, w want) {
	t.Helper()
	var got want
	for _, r := range p.Paths {
		switch own := r.Origin.Layer == policy.LayerUser; {
		case r.Access == policy.Write && r.Path == ws:
			got.workspace = true
		case r.Access == policy.Write:
			got.writes = append(got.writes, r.Path)
		case !own:
		case r.Access == policy.Hidden:
			got.hidden = append(got.hidden, r.Path)
		case r.Protect:
			got.protected = append(got.protected, r.Path)
		default:
			got.reads = append(got.reads, r.Path)
		}
	}
	for _, h := range p.Network.Allow {
		got.allow = append(got.allow, h.String())
	}
	for _, h := range p.Network.Deny {
		got.deny = append(got.deny, h.String())
	}
	for _, s := range p.Sockets {
		got.sockets = append(got.sockets, s.Path)
	}
	for _, v := range p.Env.Pass {
		got.pass = append(got.pass, v.Name)
	}
	for _, v := range p.Env.Set {
		got.set = append(got.set, v.Name+"="+v.Value)
	}
	for _, l := range []struct {
		name      string
		got, want []string
	}{
		{"reads", got.reads, w.reads}, {"writes", got.writes, w.writes}, {"hidden", got.hidden, w.hidden}, {"protected", got.protected, w.protected},
		{"allow", got.allow, w.allow}, {"deny", got.deny, w.deny}, {"sockets", got.sockets, w.sockets}, {"pass", got.pass, w.pass}, {"set", got.set, w.set},
	} {
		if !slices.Equal(l.got, l.want) {
			t.Errorf("%s are %q, want %q", l.name, l.got, l.want)
		}
	}
	if got.workspace != w.workspace || p.Network.Mode != w.mode || p.Env.Mode != w.env {
		t.Errorf("workspace %v, network %s, variables %s", got.workspace, p.Network.Mode, p.Env.Mode)
	}
}

func TestDetect(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Source
	}{
		{"config.toml", "", Codex}, {"x.json", `{"permissions":{}}`, ClaudeCode}, {"x.json", `{"sandbox":{"network":{}}}`, ClaudeCode},
		{"x.json", `{"filesystem":{}}`, SandboxRuntime}, {"x.json", `{}`, ""}, {"x", `no`, ""},
	} {
		if got, err := Detect(tt.name, []byte(tt.text)); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s %s: %q, %v", tt.name, tt.text, got, err)
		}
	}
}

func TestImportErrors(t *testing.T) {
	for _, tt := range []struct {
		from       Source
		text, want string
	}{
		{SandboxRuntime, "{\n\n,", "line 3"}, {SandboxRuntime, `{"network":{"allowedDomains":"x"}}`, "cannot unmarshal"}, {ClaudeCode, `[]`, "cannot unmarshal"},
		{Codex, "a = ", "line 1"}, {"other", "", "is not known"},
	} {
		if _, err := Import(tt.from, "f", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: %v", tt.from, tt.text, err)
		}
	}
}

// Whatever a file says, what comes out is a policy, and nothing gets out of its
// place in it.
func FuzzImport(f *testing.F) {
	for _, tt := range cases {
		f.Add(string(tt.from), tt.text)
	}
	f.Add("srt", `{"filesystem":{"allowWrite":["x\" , /]}\nnetwork: host #","$HOME","${X","a\u2028b","?x","~"]},"network":{"allowUnixSockets":["$","/a*","\u0000"],"deniedDomains":["*"]}}`)
	f.Add("claude", `{"permissions":{"deny":["Read()","Read(","Edit(**)","WebFetch(domain:)","Read(?)","Read([)"]},"env":{"A":"\n- x"}}`)
	f.Fuzz(func(t *testing.T, from, text string) {
		r, err := Import(Source(from), "f", []byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "policy that is not valid") {
				t.Fatal(err)
			}
			return
		}
		doc, err := policy.Parse("p", r.Policy)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := doc.Settings()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range settings {
			section, _, _ := strings.Cut(s.Field, ".")
			if slices.Contains([]string{"enabled", "allow_privileged", "require", "backend", "binds"}, section) {
				t.Fatalf("it says what no settings say:\n%s", r.Policy)
			}
		}
	})
}
