package resolve

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// machine is a small recorded machine that tests vary.
func machine() *host.Snapshot {
	return &host.Snapshot{
		OS: "linux", Arch: "amd64", UID: 1000, GID: 1000, User: "ana", Home: "/home/ana", Cwd: "/home/ana/project",
		MemoryTotal: 8 << 30,
		Dirs:        host.Dirs{Config: "/home/ana/.config/cloche", Data: "/home/ana/.local/share/cloche", State: "/home/ana/.local/state/cloche", Cache: "/home/ana/.cache/cloche"},
		Environ:     []string{"PATH=/usr/bin:/bin", "HOME=/home/ana", "SSH_AUTH_SOCK=/run/agent", "GITHUB_TOKEN=x", "LANG=C", "EMPTY="},
		FS: hostfs.Tree{
			"/usr/bin/true": "exec", "/usr/bin/data": "file", "/bin": "-> usr/bin", "/etc/hosts": "file", "/etc/ssh/ssh_config": "file",
			"/etc/resolv.conf": "-> ../run/resolve/stub.conf", "/run/resolve/stub.conf": "file", "/run/agent": "socket",
			"/tmp/x": "file", "/var/tmp": "dir", "/proc": "dir", "/dev/null": "device",
			"/home/ana/project/src/main.go": "file", "/home/ana/project/secrets/key": "file", "/home/ana/project/secrets/public/k": "file",
			"/home/ana/project/link": "-> /data/corpus", "/data/corpus/a": "file", "/home/ana/project/own.sock": "socket",
			"/home/ana/.ssh/id": "file", "/home/ana/.config/cloche/policy.yaml": "file", "/home/ana/.cache": "dir",
			"/home/ana/loop": "-> loop", "/home/ana/corpus": "-> /data/corpus", "/home/ana/bin/tool": "exec", "/root": "denied",
		},
	}
}

func rule(access policy.Access, p string) policy.PathRule {
	return policy.PathRule{Path: p, Access: access, Origin: policy.Origin{Layer: policy.LayerCommand, Source: "test " + p}}
}

func workspacePolicy(rules ...policy.PathRule) policy.Policy {
	return policy.Policy{Reads: policy.ReadsHost, Env: policy.Env{Mode: policy.EnvScrubbed},
		Paths: append([]policy.PathRule{{Path: "urn:cloche:workspace", Access: policy.Write, Origin: policy.Origin{Layer: policy.LayerPreset, Source: "preset workspace"}}}, rules...)}
}

func mustResolve(t *testing.T, p policy.Policy, r Request, s *host.Snapshot) *plan.Plan {
	t.Helper()
	if r.Workspace == "" {
		r.Workspace = "/home/ana/project"
	}
	got, err := Resolve(p, r, s)
	if err != nil {
		t.Fatalf("Resolve: %v", err)
	}
	return got
}

func wantAccess(t *testing.T, p *plan.Plan, want map[string]policy.Access) {
	t.Helper()
	for path, a := range want {
		if got := p.Access(path); got != a {
			t.Errorf("Access(%q) = %v by %v, want %v", path, got, p.Lookup(path).Origin, a)
		}
	}
}

// F3 F14 A1: read-only root, private folders, hidden /run, writable workspace.
func TestBaselineReadsHost(t *testing.T) {
	p := mustResolve(t, workspacePolicy(), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/": policy.Read, "/usr/bin/true": policy.Read, "/home/ana/.bashrc": policy.Read,
		"/home/ana/project": policy.Write, "/home/ana/project/src/main.go": policy.Write, "/home/ana/project2": policy.Read,
		"/run/agent": policy.Hidden, "/tmp/x": policy.Write, "/etc/ssh/ssh_config": policy.Hidden,
	})
	if c := p.Lookup("/tmp/x").Content; c != plan.Empty {
		t.Errorf("/tmp is %v, want a private one", c)
	}
}

// F14: reads: system shows the system and what is granted.
func TestBaselineReadsSystem(t *testing.T) {
	pol := workspacePolicy(rule(policy.Read, "/data/corpus"))
	pol.Reads = policy.ReadsSystem
	p := mustResolve(t, pol, Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/usr/bin/true": policy.Read, "/home/ana/.ssh/id": policy.Hidden, "/home/ana": policy.Hidden, "/data/corpus/a": policy.Read,
		"/data": policy.Hidden, "/home/ana/project/src": policy.Write,
	})
	if l := p.Lookup("/bin"); l.Content != plan.Link || l.Target != "usr/bin" {
		t.Errorf("/bin is %+v, want a link to usr/bin", l)
	}
}

// A2: only the file behind a link into /run is shown.
func TestLinkIntoRun(t *testing.T) {
	p := mustResolve(t, workspacePolicy(), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/run/resolve/stub.conf": policy.Read, "/run/resolve": policy.Hidden, "/run": policy.Hidden})
}

// F5: deny inside allow, allow inside deny, the longest match wins.
func TestLongestMatchWins(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Hidden, "/home/ana/project/secrets"), rule(policy.Read, "/home/ana/project/secrets/public")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/home/ana/project/secrets/key": policy.Hidden, "/home/ana/project/secrets/public/k": policy.Read, "/home/ana/project/src": policy.Write,
	})
}

// F5 F7: for one path the higher layer wins, within a layer the stricter rule.
func TestSamePath(t *testing.T) {
	preset := policy.PathRule{Path: "~/.ssh", Access: policy.Hidden, Origin: policy.Origin{Layer: policy.LayerPreset}}
	p := mustResolve(t, workspacePolicy(preset, rule(policy.Read, "/home/ana/.ssh")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/home/ana/.ssh/id": policy.Read})

	p = mustResolve(t, workspacePolicy(rule(policy.Write, "/data/corpus"), rule(policy.Hidden, "/data/corpus")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/data/corpus/a": policy.Hidden})
}

// F5: a child of a listed parent with the same access is left out.
func TestRedundantLinesAreDropped(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/home/ana/project/src"), rule(policy.Read, "/usr/bin")), Request{}, machine())
	for _, e := range p.Paths {
		if e.Path == "/home/ana/project/src" || e.Path == "/usr/bin" {
			t.Errorf("redundant line %+v", e)
		}
	}
}

// F5: symlinks are resolved, and the rule is about where they lead.
func TestSymlinkedRule(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/home/ana/corpus")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/data/corpus/a": policy.Write})
	if w := p.Lookup("/data/corpus/a").Written; w != "/home/ana/corpus" {
		t.Errorf("Written = %q", w)
	}
	_, err := Resolve(workspacePolicy(rule(policy.Read, "/home/ana/loop")), Request{Workspace: "/home/ana/project"}, machine())
	if err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("loop: %v", err)
	}
}

// A required path that is missing is an error with its rule; an optional one is reported.
func TestMissingPaths(t *testing.T) {
	_, err := Resolve(workspacePolicy(rule(policy.Read, "/nope")), Request{Workspace: "/home/ana/project"}, machine())
	var pe *PolicyError
	if !errors.As(err, &pe) || pe.Path != "/nope" || pe.Origin.Source != "test /nope" || !strings.Contains(pe.Fix, "?/nope") {
		t.Errorf("missing: %v", err)
	}
	optional := rule(policy.Read, "/nope")
	optional.Optional = true
	p := mustResolve(t, workspacePolicy(optional), Request{}, machine())
	if len(p.Notices) != 1 || p.Notices[0].Kind != plan.NoticeSkipped {
		t.Errorf("notices: %+v", p.Notices)
	}
}

// F4: an unset variable drops the entry and reports it; a wrong URN is an error.
func TestExpansionOutcomes(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "$NOPE/x")), Request{}, machine())
	if len(p.Notices) != 1 || p.Notices[0].Kind != plan.NoticeDropped {
		t.Errorf("notices: %+v", p.Notices)
	}
	if _, err := Resolve(workspacePolicy(rule(policy.Write, "urn:cloche:nope")), Request{Workspace: "/home/ana/project"}, machine()); err == nil {
		t.Error("an unknown URN is accepted")
	}
}

// F7: untrusted rules tighten, and never loosen, also through a symlink.
func TestUntrustedRules(t *testing.T) {
	untrusted := func(a policy.Access, p string) policy.PathRule {
		return policy.PathRule{Path: p, Access: a, Origin: policy.Origin{Layer: policy.LayerProject, Source: ".cloche.yaml", Untrusted: true}}
	}
	p := mustResolve(t, workspacePolicy(
		untrusted(policy.Hidden, "/home/ana/project/secrets"),
		untrusted(policy.Read, "/home/ana/project/src"),
		untrusted(policy.Write, "/home/ana/project/link"),
		untrusted(policy.Write, "/home/ana/.ssh"),
	), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/home/ana/project/secrets/key": policy.Hidden, "/home/ana/project/src/main.go": policy.Read,
		"/data/corpus/a": policy.Read, "/home/ana/.ssh/id": policy.Read,
	})
	ignored := 0
	for _, n := range p.Notices {
		if n.Kind == plan.NoticeIgnored {
			ignored++
		}
	}
	if ignored != 2 {
		t.Errorf("%d rules were ignored, want 2: %+v", ignored, p.Notices)
	}
}

// L6: cloche's own files are hidden whatever is granted, made first where they
// could be planted, and never granted by name.
func TestOwnFiles(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/home/ana")), Request{PolicyFiles: []string{"/home/ana/project/src/main.go"}}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/home/ana/.config/cloche/policy.yaml": policy.Hidden, "/home/ana/.local/state/cloche": policy.Hidden,
		"/home/ana/.config/other": policy.Write, "/home/ana/project/src/main.go": policy.Read,
	})
	if l := p.Lookup("/home/ana/.local/state/cloche"); !l.Create {
		t.Errorf("a missing folder of cloche's own is not made: %+v", l)
	}
	_, err := Resolve(workspacePolicy(rule(policy.Read, "/home/ana/.config/cloche/policy.yaml")), Request{Workspace: "/home/ana/project"}, machine())
	if err == nil || !strings.Contains(err.Error(), "own files") {
		t.Errorf("granting cloche's own file: %v", err)
	}
}

// Parents of a mask inside a writable tree are pinned.
func TestPins(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/home/ana")), Request{}, machine())
	got := strings.Join(p.Pins(), " ")
	for _, want := range []string{"/home/ana/.config", "/home/ana/.local", "/home/ana/.local/share"} {
		if !strings.Contains(" "+got+" ", " "+want+" ") {
			t.Errorf("Pins() = %s, want %s among them", got, want)
		}
	}
}

// C2: sockets that the plan would show are hidden unless granted exactly.
func TestSockets(t *testing.T) {
	s := machine()
	s.Sockets = []string{"/home/ana/project/own.sock", "/run/agent", "/gone.sock"}
	p := mustResolve(t, workspacePolicy(), Request{}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/ana/project/own.sock": policy.Hidden, "/run/agent": policy.Hidden})

	pol := workspacePolicy()
	pol.Sockets = []policy.Socket{{Path: "/home/ana/project/own.sock"}, {Path: "$SSH_AUTH_SOCK"}}
	p = mustResolve(t, pol, Request{}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/ana/project/own.sock": policy.Write, "/run/agent": policy.Write, "/run/agent2": policy.Hidden})

	pol.Sockets = []policy.Socket{{Path: "/usr/bin/true"}}
	if _, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, s); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file as socket: %v", err)
	}
}

// A4 W2: the allowlist passes, the denylist beats it, values set knowingly pass.
func TestEnvironment(t *testing.T) {
	pol := workspacePolicy()
	pol.Env.Pass = []policy.EnvPass{{Name: "GITHUB_TOKEN"}, {Name: "SSH_*"}, {Name: "EMPTY"}}
	pol.Env.Set = []policy.EnvSet{{Name: "API_TOKEN", Value: "v"}}
	p := mustResolve(t, pol, Request{}, machine())
	got := strings.Join(p.Environ(), " ")
	if want := "API_TOKEN=v EMPTY= HOME=/home/ana LANG=C PATH=/usr/bin:/bin"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
	if len(p.Notices) != 1 || p.Notices[0].Kind != plan.NoticeDropped {
		t.Errorf("the variable asked for by name is held back in silence: %+v", p.Notices)
	}
	pol = workspacePolicy()
	pol.Env.Mode = policy.EnvInherit
	for _, v := range mustResolve(t, pol, Request{}, machine()).Env {
		if v.Name == "SSH_AUTH_SOCK" || v.Name == "GITHUB_TOKEN" {
			t.Errorf("%s passes under inherit", v.Name)
		}
	}
}

// C4: the program is reachable where its folder is not granted.
func TestProgramIsReachable(t *testing.T) {
	pol := workspacePolicy()
	pol.Reads = policy.ReadsSystem
	p := mustResolve(t, pol, Request{Name: "/home/ana/bin/tool", Args: []string{"tool"}}, machine())
	wantAccess(t, p, map[string]policy.Access{"/home/ana/bin/tool": policy.Read, "/home/ana/bin/other": policy.Hidden})
}

func TestCommandErrors(t *testing.T) {
	for name, notFound := range map[string]bool{"nope": true, "/usr/bin/nope": true, "/usr/bin/data": false, "/usr/bin": false, "./src/main.go": false} {
		_, err := Resolve(workspacePolicy(), Request{Workspace: "/home/ana/project", Name: name}, machine())
		var ce *CommandError
		if !errors.As(err, &ce) || ce.NotFound != notFound {
			t.Errorf("%s: %v, want NotFound %v", name, err, notFound)
		}
	}
}

// L3: remap moves the workspace with everything in it, and back.
func TestRemap(t *testing.T) {
	pol := workspacePolicy(rule(policy.Hidden, "/home/ana/project/secrets"))
	pol.Remap = "/workspace"
	p := mustResolve(t, pol, Request{Name: "true"}, machine())
	wantAccess(t, p, map[string]policy.Access{
		"/workspace/src": policy.Write, "/workspace/secrets/key": policy.Hidden,
		"/home/ana/project/src": policy.Hidden, "/home/ana/project/secrets": policy.Hidden, "/usr/bin/true": policy.Read,
	})
	if h, ok := p.HostPath("/workspace/src/main.go"); !ok || h != "/home/ana/project/src/main.go" {
		t.Errorf("HostPath = %q %v", h, ok)
	}
	if h, ok := p.HostPath("/workspace2/x"); ok {
		t.Errorf("HostPath of a neighbour = %q", h)
	}
	if in, ok := p.InsidePath("/home/ana/project/src"); !ok || in != "/workspace/src" {
		t.Errorf("InsidePath = %q %v", in, ok)
	}
	if in, ok := p.InsidePath("/home/ana/project/secrets/key"); ok {
		t.Errorf("InsidePath of a hidden file = %q", in)
	}
	if p.Command.Dir != "/workspace" {
		t.Errorf("Dir = %q", p.Command.Dir)
	}
}

// L1 L2: binds and persisted folders appear at their targets without anything
// being created on the host.
func TestBindAndPersist(t *testing.T) {
	pol := workspacePolicy()
	pol.Binds = []policy.Bind{{Source: "/data/corpus", Target: "/corpus", ReadOnly: true}}
	pol.Persist = []policy.Persist{{Path: "~/.npm"}}
	p := mustResolve(t, pol, Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/corpus/a": policy.Read, "/home/ana/.npm/x": policy.Write, "/home/ana/.ssh/id": policy.Read, "/usr/bin/true": policy.Read})
	if l := p.Lookup("/home/ana"); l.Content != plan.Empty {
		t.Errorf("/home/ana is not taken apart: %+v", l)
	}
	if h, _ := p.HostPath("/home/ana/.npm/x"); !strings.HasPrefix(h, "/home/ana/.local/share/cloche/persist/") {
		t.Errorf("persisted in %q", h)
	}
	pol.Binds = []policy.Bind{{Source: "/data/corpus", Target: "/home/ana/project/new"}}
	if _, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, machine()); err == nil || !strings.Contains(err.Error(), "creates nothing there") {
		t.Errorf("a bind that would leave a folder behind: %v", err)
	}
}

// F5: the root itself can be granted.
func TestRootWritable(t *testing.T) {
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/opt/x": policy.Write, "/home/ana/.config/cloche": policy.Hidden, "/run/agent": policy.Hidden})
}

// The host's /proc, /sys and /dev are opened by no rule, and are no workspace.
func TestKernelTrees(t *testing.T) {
	s := machine()
	tree := s.FS.(hostfs.Tree)
	tree["/sys/fs/cgroup"], tree["/proc/sys/kernel"], tree["/dev/shm"] = "dir", "dir", "dir"
	for _, p := range []string{"/proc", "/proc/sys/kernel", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm"} {
		if _, err := Resolve(workspacePolicy(rule(policy.Write, p)), Request{Workspace: "/home/ana/project"}, s); err == nil || !strings.Contains(err.Error(), "never opened") {
			t.Errorf("write %s: %v", p, err)
		}
		if _, err := Resolve(workspacePolicy(), Request{Workspace: p}, s); err == nil || !strings.Contains(err.Error(), "never opened") {
			t.Errorf("workspace %s: %v", p, err)
		}
		pol := workspacePolicy()
		pol.Binds = []policy.Bind{{Source: p, Target: "/mnt"}}
		if _, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, s); err == nil {
			t.Errorf("a bind of %s is accepted", p)
		}
	}
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/")), Request{}, s)
	wantAccess(t, p, map[string]policy.Access{"/sys/fs/cgroup": policy.Read, "/opt": policy.Write})
	if c := p.Lookup("/proc/sys/kernel").Content; c != plan.Proc {
		t.Errorf("/proc is %v", c)
	}
}

// F14 L6: secrets and cloche's own folders are masked in other homes as well.
func TestOtherHomes(t *testing.T) {
	s := machine()
	s.Home, s.Homes = "/tmp/fake", []string{"/home/ana"}
	pol := workspacePolicy(policy.PathRule{Path: "~/.ssh", Access: policy.Hidden, Optional: true, Origin: policy.Origin{Layer: policy.LayerPreset}})
	s.Dirs = host.Dirs{Config: "/tmp/fake/.config/cloche"}
	wantAccess(t, mustResolve(t, pol, Request{}, s), map[string]policy.Access{"/home/ana/.ssh/id": policy.Hidden, "/home/ana/.config/cloche/policy.yaml": policy.Hidden})
}

// A rule that takes away is never dropped for a variable.
func TestUnsetVariableDoesNotOpen(t *testing.T) {
	for _, r := range []policy.PathRule{rule(policy.Hidden, "$NOPE/x"), {Path: "$NOPE/x", Access: policy.Read, Protect: true}} {
		if _, err := Resolve(workspacePolicy(r), Request{Workspace: "/home/ana/project"}, machine()); err == nil || !strings.Contains(err.Error(), "NOPE is not set") {
			t.Errorf("%+v: %v", r, err)
		}
		r.Optional = true
		mustResolve(t, workspacePolicy(r), Request{}, machine())
	}
}

// A policy file that is a link to something hidden does not show it.
func TestPolicyFileDoesNotUnmask(t *testing.T) {
	s := machine()
	s.FS.(hostfs.Tree)["/home/ana/project/.cloche.yaml"] = "-> /home/ana/.ssh/id"
	p := mustResolve(t, workspacePolicy(rule(policy.Hidden, "/home/ana/.ssh")), Request{PolicyFiles: []string{"/home/ana/project/.cloche.yaml"}}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/ana/.ssh/id": policy.Hidden})
}

// F1: a disabled policy changes nothing.
func TestDisabled(t *testing.T) {
	p := mustResolve(t, policy.Policy{Disabled: true}, Request{Name: "true"}, machine())
	if p.Access("/etc/x") != policy.Write || len(p.Env) != 6 || len(p.Limits) != 0 {
		t.Errorf("disabled plan %+v", p)
	}
}

// A3: a writable workspace under a read-only ancestor stays writable.
func TestWorkspaceUnderReadOnlyAncestor(t *testing.T) {
	pol := workspacePolicy(rule(policy.Read, "/home/ana"))
	pol.Reads = policy.ReadsSystem
	p := mustResolve(t, pol, Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/home/ana/.ssh/id": policy.Read, "/home/ana/project/x": policy.Write})
}

func TestSameInputSamePlan(t *testing.T) {
	pol := workspacePolicy(rule(policy.Write, "/home/ana"), rule(policy.Hidden, "/home/ana/.ssh"))
	var first string
	for range 20 {
		b, err := json.Marshal(mustResolve(t, pol, Request{Name: "true"}, machine()))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(b)
		}
		if string(b) != first {
			t.Fatal("two plans of one policy differ")
		}
	}
}

func TestWorkspaceHasToBeAFolder(t *testing.T) {
	for ws, want := range map[string]string{"/usr/bin/true": "not a folder", "/nope": "no such folder", "/root/x": "permission denied"} {
		_, err := Resolve(workspacePolicy(), Request{Workspace: ws}, machine())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ws, err, want)
		}
	}
}

// F7: below a private folder an untrusted rule does not bring the host's back.
func TestUntrustedBelowPrivate(t *testing.T) {
	origin := policy.Origin{Layer: policy.LayerProject, Source: ".cloche.yaml", Untrusted: true}
	p := mustResolve(t, workspacePolicy(
		policy.PathRule{Path: "/tmp/x", Access: policy.Write, Origin: origin},
		policy.PathRule{Path: "/run/resolve", Access: policy.Read, Origin: origin},
	), Request{}, machine())
	for _, path := range []string{"/tmp/x", "/run/resolve"} {
		if l := p.Lookup(path); l.Content == plan.Host {
			t.Errorf("%s shows the host's: %+v", path, l)
		}
	}
}

// A4 W2: what looks like a secret by its name or by its value does not pass, and what was
// held back is reported by name; ordinary variables pass.
func TestSecretVariables(t *testing.T) {
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	secret := []string{
		"DB_PASS=x", "SESSION_COOKIE=x", "AUTH_HEADER=x", "BEARER=x", "JWT=x", "SLACK_WEBHOOK_URL=x", "HTTPS_PROXY=http://ana:hunter2@proxy:3128",
		"all_proxy=socks5://ana:p@ss@proxy", "PASS=x", "MY_PWD=x", "ROOT_PW=x", "SIGNING_KEYS=x", "APP_CREDS=x", "AZ_CONNECTION_STRING=x", "RAILS_MASTER_KEY=x",
		"SECRET_KEY_BASE=x", "npm_config__auth=x", "MONGODB_URI=x", "NOTE=see ghp_" + strings.Repeat("a", 36), "A=glpat-" + strings.Repeat("a", 20), "B=sk-ant-api03-" + strings.Repeat("a", 40),
		"C=" + jwt, "D=Bearer " + jwt, "E=-----BEGIN OPENSSH PRIVATE KEY-----", "F=https://hooks.slack.com/services/T0/B0/x", "G=AKIAIOSFODNN7EXAMPLE", "H=xoxb-1234567890-abcdefgh",
		"I=postgres://u:p@h/db", "J=a b https://x:y@z", "COOKIE=1", "PROXY_AUTH_INFO=x",
	}
	plain := []string{
		"PWD=/w", "OLDPWD=/w", "EDITOR=vi", "GIT_AUTHOR_NAME=Ana", "KEYBOARD=de", "COMPASS_HOME=/c", "BYPASS=1", "AUTHOR=ana", "MONKEY=1", "HTTP_PROXY=http://proxy:3128",
		"NO_PROXY=localhost", "TASK=task-1234567890123456789012", "URL=https://ana@example.com/x:y@z", "SK=sk-short", "EYE=eyJ.a.b", "XDG_SESSION_ID=3", "LS_COLORS=di=01;34",
		"MESSAGE=basic", "SPAN=npm_modules", "GOPATH=/go", "SSL_CERT_FILE=/c.pem",
	}
	m := machine()
	m.Environ = slices.Concat(secret, plain)
	pol := workspacePolicy()
	pol.Env.Mode = policy.EnvInherit
	p := mustResolve(t, pol, Request{}, m)
	passed := p.Environ()
	for _, kv := range secret {
		if slices.Contains(passed, kv) {
			t.Errorf("%s passes", kv)
		}
		name, value, _ := strings.Cut(kv, "=")
		told := slices.ContainsFunc(p.Notices, func(n plan.Notice) bool {
			return strings.Contains(n.Text, " "+name+",") || strings.Contains(n.Text, " "+name+";")
		})
		if !told {
			t.Errorf("%s was held back in silence", name)
		}
		if slices.ContainsFunc(p.Notices, func(n plan.Notice) bool { return len(value) > 1 && strings.Contains(n.Text, value) }) {
			t.Errorf("a notice has the value of %s", name)
		}
	}
	for _, kv := range plain {
		if !slices.Contains(passed, kv) {
			t.Errorf("%s does not pass", kv)
		}
	}
	// One that a preset names passes, unless its value is a secret.
	m.Environ = []string{"MAX_THINKING_TOKENS=4000", "CLAUDE_CODE_MAX_OUTPUT_TOKENS=ghp_" + strings.Repeat("a", 36)}
	pol = workspacePolicy()
	for _, kv := range m.Environ {
		name, _, _ := strings.Cut(kv, "=")
		pol.Env.Pass = append(pol.Env.Pass, policy.EnvPass{Name: name, Origin: policy.Origin{Layer: policy.LayerTool, Source: "preset claude"}})
	}
	if p := mustResolve(t, pol, Request{}, m); !slices.Contains(p.Environ(), "MAX_THINKING_TOKENS=4000") || len(p.Environ()) != 1 {
		t.Errorf("by a preset: %v", p.Environ())
	}
}

// N8: privileges can be kept by root alone, and nothing else is blamed for that.
func TestPrivilegedIsForRoot(t *testing.T) {
	pol := workspacePolicy()
	pol.Privileged, pol.PrivilegedOrigin = true, policy.Origin{Layer: policy.LayerUser, Source: "policy.yaml", Line: 3}
	m := machine()
	m.UID = 1000
	_, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, m)
	if err == nil || !strings.Contains(err.Error(), "policy.yaml:3: allow_privileged: is for root, and this is user 1000") {
		t.Errorf("as a user: %v", err)
	}
	m.UID = 0
	if _, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, m); err != nil {
		t.Errorf("as root: %v", err)
	}
}
