package resolve

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const project = "/home/ana/project"

// merged is the policy of presets and of one more document, which stands for
// flags or a user's file.
func merged(t *testing.T, layer policy.Layer, text string, presets ...string) policy.Policy {
	t.Helper()
	doc, err := policy.ParseIn("test", project, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range presets {
		if err := doc.Set("presets", name, "test"); err != nil {
			t.Fatal(err)
		}
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: layer})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// judgeOf resolves a policy on the test machine.
func judgeOf(t *testing.T, p policy.Policy, m *host.Snapshot) *judge.Files {
	t.Helper()
	return judge.NewFiles(mustResolve(t, p, Request{}, m))
}

func wantVerdicts(t *testing.T, j *judge.Files, want map[string]policy.Access) {
	t.Helper()
	for p, a := range want {
		if v := j.Path(p); v.Access != a {
			t.Errorf("%s is %v by %s %s (%s), want %v", p, v.Access, v.Rule, v.Subject, v.Origin, a)
		}
	}
}

// example is a name that a pattern of the presets matches, relative to a folder.
func example(pattern string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pattern, "**/"), "*", "x")
}

// N9: each sink is closed at any depth, whether it is there or not, to what is
// in it, too, by its own rule and with its reason; and open in a folder that
// package managers fill.
func TestEverySinkIsClosed(t *testing.T) {
	sinks, err := policy.FromPreset("sinks")
	if err != nil {
		t.Fatal(err)
	}
	j := judgeOf(t, merged(t, policy.LayerCommand, "", "workspace", "sinks"), machine())
	count := 0
	for _, e := range sinks.Paths {
		if !strings.HasPrefix(e.Path, "**/") {
			continue
		}
		count++
		name := example(e.Path)
		for _, at := range []string{path.Join(project, name), path.Join(project, "a/b", name), path.Join(project, name, "in/it")} {
			v := j.Path(at)
			if v.Access != policy.Read || v.Rule != "paths.protect" || v.Subject != "/"+e.Path || v.Reason != e.Reason || v.Origin.Source != "preset sinks" {
				t.Errorf("%s: got %+v", at, v)
			}
		}
		if at := path.Join(project, "node_modules/p", name); j.Path(at).Access != policy.Write {
			t.Errorf("%s: got %+v", at, j.Path(at))
		}
	}
	if count < 200 {
		t.Errorf("only %d sinks were looked at", count)
	}
}

// What is near a sink, and what only a fetched folder holds, is not one.
func TestSinksLeaveWorkOpen(t *testing.T) {
	wantVerdicts(t, judgeOf(t, merged(t, policy.LayerCommand, "", "workspace", "sinks"), machine()), map[string]policy.Access{
		project + "/.vscode2/x": policy.Write, project + "/vscode/.x": policy.Write, project + "/.config/x": policy.Write,
		project + "/AGENTS.md": policy.Write, project + "/.gitignore": policy.Write, project + "/.git/index": policy.Write,
		project + "/.env": policy.Write, project + "/.github/workflows/ci.yml": policy.Write, project + "/bin/x": policy.Write,
		project + "/.venv/lib/python3/site-packages/sitecustomize.py": policy.Write, project + "/vendor/bundle/g/.vscode/x": policy.Write,
		// The folder has to be around the sink, not in it, and below the workspace.
		project + "/.vscode/node_modules/x":   policy.Read,
		project + "/node_modules2/.vscode":    policy.Read,
		project + "/src/node_modules/.vscode": policy.Write,
	})
}

// A workspace in a folder with an exempt name is protected like any other.
func TestExemptNamesAboveTheWorkspace(t *testing.T) {
	m := machine()
	m.FS.(hostfs.Tree)["/home/ana/vendor/app/main.go"] = "file"
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace", "sinks"), Request{Workspace: "/home/ana/vendor/app"}, m)
	wantVerdicts(t, judge.NewFiles(p), map[string]policy.Access{
		"/home/ana/vendor/app/.vscode": policy.Read, "/home/ana/vendor/app/vendor/p/.vscode": policy.Write,
	})
}

// Caches of the home folder hold whole packages; they are exempt by their path,
// also where a link leads to them.
func TestExemptCaches(t *testing.T) {
	m := machine()
	tree := m.FS.(hostfs.Tree)
	delete(tree, "/home/ana/.cache")
	tree["/home/ana/.cache"], tree["/data/cache"], tree["/home/ana/go/pkg/mod"] = "-> /data/cache", "dir", "dir"
	wantVerdicts(t, judgeOf(t, merged(t, policy.LayerCommand, "", "workspace", "sinks", "caches", "go"), m), map[string]policy.Access{
		"/data/cache/uv/p/.vscode/x": policy.Write, "/home/ana/go/pkg/mod/p@v1/.envrc": policy.Write, project + "/.envrc": policy.Read,
	})
}

// An exemption is about the patterns of its own layer and of lower ones, and
// never about what is hidden.
func TestExemptionLayers(t *testing.T) {
	text := `paths: {protect: ["**/*.lock"], hide: ["**/*.pem"], protect_unless_under: [gen, ./out]}`
	p := merged(t, policy.LayerUser, text, "workspace", "sinks")
	p.Paths = append(p.Paths, policy.PathRule{Path: "**/.x", Access: policy.Read, Protect: true, Origin: policy.Origin{Layer: policy.LayerCommand, Source: "flag"}})
	got := mustResolve(t, p, Request{}, machine())
	wantVerdicts(t, judge.NewFiles(got), map[string]policy.Access{
		project + "/a.lock": policy.Read, project + "/gen/a.lock": policy.Write, project + "/out/b/a.lock": policy.Write,
		project + "/src/out/a.lock": policy.Read, // a path is one folder, a name is any
		project + "/gen/.vscode":    policy.Write,
		// The preset's exemptions do not reach the user's rule, nor the user's the flag's.
		project + "/node_modules/a.lock": policy.Read, project + "/gen/.x": policy.Read,
		project + "/gen/k.pem": policy.Hidden, project + "/node_modules/k.pem": policy.Hidden,
	})
	if !slices.ContainsFunc(got.Exempt, func(e plan.Exemption) bool { return e.Folder == project+"/out" && e.Origin.Source == "test" }) {
		t.Errorf("the plan does not show the exemptions: %+v", got.Exempt)
	}
}

// Opting out is naming the path at a higher layer; the rest of the list stays.
func TestSinkGrantedByName(t *testing.T) {
	m := machine()
	m.FS.(hostfs.Tree)[project+"/.vscode/settings.json"] = "file"
	wantVerdicts(t, judgeOf(t, merged(t, policy.LayerCommand, "paths: {write: [./.vscode]}", "workspace", "sinks"), m), map[string]policy.Access{
		project + "/.vscode/settings.json": policy.Write, project + "/sub/.vscode": policy.Read, project + "/.idea": policy.Read,
		project + "/.vscode/.envrc": policy.Read,
	})
}

// F7 N9: a project's file that is not trusted gives back nothing that a pattern
// takes, also where its rule is a stricter one than that of the folder around.
func TestUntrustedRulesKeepPatterns(t *testing.T) {
	m := machine()
	tree := m.FS.(hostfs.Tree)
	tree[project+"/.vscode/settings.json"], tree[project+"/.env"], tree[project+"/keys/.env/k"] = "file", "file", "file"
	doc, err := policy.ParseIn("f", project, []byte("paths: {write: [./.vscode, ./.vscode/settings.json], read: [./.env, ./keys/.env/k]}"))
	if err != nil {
		t.Fatal(err)
	}
	user, err := policy.Parse("u", []byte("presets: [workspace, sinks, dotenv]"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Merge(policy.Layered{Doc: user, Layer: policy.LayerUser}, policy.Layered{Doc: doc, Layer: policy.LayerProject, Untrusted: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]policy.Access{
		project + "/.vscode": policy.Read, project + "/.vscode/settings.json": policy.Read,
		project + "/.env": policy.Hidden, project + "/keys/.env/k": policy.Hidden,
	}
	wantVerdicts(t, judgeOf(t, p, m), want)
	p, _, err = policy.Merge(policy.Layered{Doc: user, Layer: policy.LayerUser}, policy.Layered{Doc: doc, Layer: policy.LayerProject})
	if err != nil {
		t.Fatal(err)
	}
	for at := range want {
		want[at] += 1 // trusted, it gets what it asks for
	}
	wantVerdicts(t, judgeOf(t, p, m), want)
}

// A workspace that is itself named like a sink was asked for.
func TestWorkspaceNamedLikeASink(t *testing.T) {
	m := machine()
	m.FS.(hostfs.Tree)["/home/ana/.config/nvim/init.lua"] = "file"
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace", "sinks"), Request{Workspace: "/home/ana/.config/nvim"}, m)
	wantVerdicts(t, judge.NewFiles(p), map[string]policy.Access{"/home/ana/.config/nvim/init.lua": policy.Write, "/home/ana/.config/nvim/.vscode": policy.Read})
}

// F14 L6: every secret is hidden where it exists, with its reason, and is shown
// again by naming it.
func TestEverySecretIsHidden(t *testing.T) {
	secretRules, err := policy.FromPreset("secrets")
	if err != nil {
		t.Fatal(err)
	}
	m := machine()
	granted := merged(t, policy.LayerCommand, "", "workspace")
	var secrets []string
	for _, e := range secretRules.Paths {
		if !e.Found && !strings.Contains(e.Path, "$") {
			at := strings.NewReplacer("~", "/home/ana", "urn:cloche:workspace", project).Replace(e.Path)
			secrets = append(secrets, at)
			m.FS.(hostfs.Tree)[at+"/x"] = "file"
			granted.Paths = append(granted.Paths, rule(policy.Read, at))
		}
	}
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
	shown := mustResolve(t, granted, Request{}, m)
	for _, at := range secrets {
		if l := p.Lookup(at + "/x"); l.Access != policy.Hidden || l.Reason == "" || l.Origin.Source != "preset secrets" {
			t.Errorf("%s has the line %+v", at, l)
		}
		if a := shown.Access(at + "/x"); a != policy.Read {
			t.Errorf("%s is %v when it is granted: %+v", at, a, shown.Lookup(at+"/x"))
		}
	}
	if len(secrets) < 250 {
		t.Errorf("only %d secrets were looked at", len(secrets))
	}
}

// F14: a variable that moves a secret is followed, with whatever people set it to.
func TestMovedSecrets(t *testing.T) {
	hidden := func(variable, at string) {
		t.Helper()
		m := machine()
		m.Environ = append(m.Environ, variable)
		m.FS.(hostfs.Tree)[at] = "file"
		p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
		if l := p.Lookup(at); l.Access != policy.Hidden || l.Origin.Source != "preset secrets" {
			t.Errorf("%s: %s has the line %+v", variable, at, l)
		}
	}
	hidden("KUBECONFIG=/data/kube.yaml", "/data/kube.yaml")
	hidden("NETRC=/data/netrc", "/data/netrc")
	// A program takes a relative value from the folder that it starts in.
	hidden("GOOGLE_APPLICATION_CREDENTIALS=key.json", project+"/key.json")
	hidden("XDG_CONFIG_HOME=/data/conf", "/data/conf/gh/hosts.yml")
	hidden("XDG_DATA_HOME=/data/share/", "/data/share/keyrings/login.keyring")
	hidden("XDG_CONFIG_HOME=/data/conf", "/home/ana/.config/gh/hosts.yml")

	m := machine()
	m.Environ = append(m.Environ, "NETRC=/dev/null", "NPM_CONFIG_USERCONFIG=/dev/null", "XDG_CONFIG_HOME=relative")
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
	if l := p.Lookup("/dev/null"); l.Path != "/dev" {
		t.Errorf("/dev/null has a line of its own: %+v", l)
	}
	// A user's own rule says what it means.
	_, err := Resolve(workspacePolicy(rule(policy.Hidden, "$NAME")), Request{Workspace: project}, withEnv(machine(), "NAME=relative"))
	if err == nil || !strings.Contains(err.Error(), "relative") {
		t.Errorf("a relative value in a user's rule: %v", err)
	}
}

func withEnv(m *host.Snapshot, variable string) *host.Snapshot {
	m.Environ = append(m.Environ, variable)
	return m
}

// F14: a layout that follows a relative variable is about its working folder.
func TestMovedSecretsInALayout(t *testing.T) {
	m := withEnv(machine(), "KUBECONFIG=kube.yaml")
	l, err := ResolveLayout(merged(t, policy.LayerCommand, "", "workspace"), Request{Workspace: project, Dir: project}, m)
	if err != nil {
		t.Fatal(err)
	}
	if !l.cwd {
		t.Error("the layout is used for other folders, too")
	}
}

// L3 N9: patterns and exemptions about the workspace follow it to where the
// command sees it.
func TestPatternsAreRemapped(t *testing.T) {
	text := "remap: /workspace\npaths: {hide: ['./**/*.pem'], protect: ['./**/*.lock'], protect_unless_under: [./gen]}"
	j := judgeOf(t, merged(t, policy.LayerCommand, text, "workspace", "sinks"), machine())
	wantVerdicts(t, j, map[string]policy.Access{
		"/workspace/a/k.pem": policy.Hidden, "/workspace/a.lock": policy.Read, "/workspace/gen/a.lock": policy.Write,
		"/workspace/.vscode": policy.Read, "/workspace/src": policy.Write,
	})
	_, err := Resolve(merged(t, policy.LayerCommand, "remap: /workspace\npaths: {hide: ['/home/*/project/*.pem']}", "workspace"), Request{Workspace: project}, machine())
	if err == nil || !strings.Contains(err.Error(), "urn:cloche:workspace/") {
		t.Errorf("a pattern that would no longer hold: %v", err)
	}
}
