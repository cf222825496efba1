package resolve

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const realToken = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

// secretive is a machine with the value of a secret in variables and files.
func secretive() *host.Snapshot {
	m := machine()
	m.Environ = []string{"PATH=/usr/bin:/bin", "GITHUB_TOKEN=" + realToken, "GH_TOKEN=" + realToken, "NPM_TOKEN=" + realToken, "OTHER=" + realToken + "x", "PLAIN=not-shaped-like-a-token", "DOCKER_USERNAME=ana"}
	tree := m.FS.(hostfs.Tree)
	for _, f := range []string{"/home/ana/.npmrc", "/home/ana/tokens/t", "/home/ana/.config/gh/hosts.yml"} {
		tree[f] = "file"
	}
	return m
}

func environ(p *plan.Plan) map[string]string {
	out := map[string]string{}
	for _, v := range p.Env {
		out[v.Name] = v.Value
	}
	return out
}

// N14: the placeholder stands where programs look, the value nowhere, and its sources are hidden.
func TestSecretInPlan(t *testing.T) {
	pol := workspacePolicy().With(policy.WithSecret("gh", "npm", "docker", "T@a.example=env:PLAIN", "F@b.example=file:~/tokens/t"), policy.Set("env.policy", "inherit"))
	r := Request{Backend: "native", Name: "true", Placeholders: map[string]string{"GH_TOKEN": "ghp_PH", "NPM_TOKEN": "npm_PH", "DOCKER_TOKEN": "dckr_PH", "T": "t_PH", "F": "f_PH"}}
	p := mustResolve(t, pol, r, secretive())
	env := environ(p)
	for name, want := range map[string]string{
		"GH_TOKEN": "ghp_PH", "GITHUB_TOKEN": "ghp_PH", "NPM_TOKEN": "npm_PH", "T": "t_PH", "F": "f_PH", "PLAIN": "",
		"NPM_CONFIG_USERCONFIG": "/home/ana/.npmrc", "DOCKER_CONFIG": "/run/cloche/secrets/DOCKER_TOKEN", "DOCKER_USERNAME": "ana",
		"GIT_CONFIG_COUNT": "6", "GIT_CONFIG_KEY_2": "credential.https://github.com.helper", "GIT_CONFIG_VALUE_2": "",
		"GIT_CONFIG_VALUE_3": `!f() { test "$1" = get && echo "username=x-access-token" && echo "password=$GH_TOKEN"; }; f`,
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	text := func(path string) string {
		t.Helper()
		i := slices.IndexFunc(p.Paths, func(e plan.Path) bool { return e.Path == path })
		if i < 0 || p.Paths[i].Content != plan.Text || p.Paths[i].Access != policy.Read {
			t.Fatalf("%s shows no text: %+v", path, p.Lookup(path))
		}
		return p.Paths[i].Text
	}
	if got := text("/home/ana/.npmrc"); got != "//registry.npmjs.org/:_authToken=npm_PH\n" {
		t.Errorf("~/.npmrc has %q", got)
	}
	if got := text("/home/ana/.config/gh/hosts.yml"); !strings.Contains(got, "oauth_token: ghp_PH\n") {
		t.Errorf("hosts.yml has %q", got)
	}
	if got, want := text("/run/cloche/secrets/DOCKER_TOKEN/config.json"), base64.StdEncoding.EncodeToString([]byte("ana:dckr_PH")); !strings.Contains(got, want) {
		t.Errorf("config.json has %q, want %s in it", got, want)
	}
	wantAccess(t, p, map[string]policy.Access{"/home/ana/tokens/t": policy.Hidden})
	whole, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{string(whole), strings.Join(p.Environ(), "\n"), text("/run/cloche/policy")} {
		if strings.Contains(shown, realToken) {
			t.Errorf("the value is in\n%s", shown)
		}
	}
	for _, ph := range []string{"ghp_PH", "npm_PH", "t_PH"} {
		if strings.Contains(text("/run/cloche/policy"), ph) || slices.ContainsFunc(p.Notices, func(n plan.Notice) bool { return strings.Contains(n.Text, ph) }) {
			t.Errorf("the placeholder %s is in a notice or in the policy that the command can read", ph)
		}
	}
	if !strings.Contains(text("/run/cloche/policy"), "secret NPM_TOKEN@registry.npmjs.org\t# ") {
		t.Errorf("the policy in force does not name the secret:\n%s", text("/run/cloche/policy"))
	}
	if !p.Network.NeedsInspection() || len(p.Network.Inspect) != 10 {
		t.Errorf("inspected: %v", p.Network.Inspect)
	}
	if !slices.ContainsFunc(p.Network.Allow, func(h plan.HostPort) bool {
		return h.String() == "https://a.example" && h.Reason == "for the secret T" && h.Origin.Source == "Go API"
	}) {
		t.Errorf("the host of a secret is not allowed: %v", p.Network.Allow)
	}
}

// N14: in a warm session the value does not pass, either.
func TestSecretInLayout(t *testing.T) {
	pol := workspacePolicy().With(policy.WithSecret("T@a.example=env:PLAIN"), policy.Set("env.policy", "inherit"))
	m := secretive()
	l, err := ResolveLayout(pol, Request{Workspace: "/home/ana/project", Backend: "native", Placeholders: map[string]string{"T": "t_PH"}}, m)
	if err != nil {
		t.Fatal(err)
	}
	m.Environ = append(slices.Clone(m.Environ), "MORE=1")
	p, err := l.Command(Request{Name: "true", Backend: "native"}, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if env := environ(p); env["T"] != "t_PH" || env["PLAIN"] != "" || env["MORE"] != "1" {
		t.Errorf("the environment is %v", env)
	}
}

// N14: without mounts nothing can be shown in place of a real file, which stays hidden.
func TestSecretWithoutMounts(t *testing.T) {
	pol := workspacePolicy().With(policy.WithSecret("npm", "docker"))
	p := mustResolve(t, pol, Request{Backend: "landlock", NoMounts: true, Placeholders: map[string]string{"NPM_TOKEN": "npm_PH", "DOCKER_TOKEN": "d"}}, secretive())
	if l := p.Lookup("/home/ana/.npmrc"); l.Access != policy.Hidden || l.Content != plan.Empty {
		t.Errorf("~/.npmrc is %+v", l)
	}
	env := environ(p)
	if env["NPM_TOKEN"] != "npm_PH" || env["NPM_CONFIG_USERCONFIG"] != "" || env["DOCKER_CONFIG"] != "" {
		t.Errorf("the environment is %v", env)
	}
	if !slices.ContainsFunc(p.Notices, func(n plan.Notice) bool { return strings.Contains(n.Text, "~/.npmrc stays hidden") }) {
		t.Errorf("it is not reported: %v", p.Notices)
	}
}

// N14: a secret that cannot be used leaves nothing open.
func TestUnusableSecret(t *testing.T) {
	for name, c := range map[string]struct {
		options []policy.Option
		secrets map[string]string
		notice  string
	}{
		"no network":   {[]policy.Option{policy.WithNetwork(policy.NetworkNone)}, map[string]string{"T": "x", "F": "x"}, "the network mode is none"},
		"host network": {[]policy.Option{policy.WithNetwork(policy.NetworkHost)}, map[string]string{"T": "x", "F": "x"}, "the network mode is host"},
		"optional":     {[]policy.Option{func(p *policy.Policy) { p.Secrets[0].Optional, p.Secrets[1].Optional = true, true }}, map[string]string{}, "it has no value"},
	} {
		pol := workspacePolicy().With(policy.WithSecret("T@a.example=env:PLAIN", "F@b.example=file:~/tokens/t"), policy.Set("env.policy", "inherit")).With(c.options...)
		p := mustResolve(t, pol, Request{Backend: "native", Placeholders: c.secrets}, secretive())
		if env := environ(p); env["T"] != "" || env["F"] != "" || env["PLAIN"] != "" || len(p.Secrets) != 0 || p.Network.NeedsInspection() || len(p.Network.Allow) != 0 {
			t.Errorf("%s: the plan has %v, %v and %v", name, p.Secrets, env, p.Network)
		}
		wantAccess(t, p, map[string]policy.Access{"/home/ana/tokens/t": policy.Hidden})
		if !slices.ContainsFunc(p.Notices, func(n plan.Notice) bool {
			return strings.HasPrefix(n.Text, "secrets T: ") && strings.Contains(n.Text, c.notice)
		}) {
			t.Errorf("%s: the notices are %v", name, p.Notices)
		}
	}
	_, err := Resolve(workspacePolicy().With(policy.WithSecret("T@a.example")), Request{Workspace: "/home/ana/project", Placeholders: map[string]string{}}, machine())
	if err == nil || !strings.Contains(err.Error(), "secrets") || !strings.Contains(err.Error(), "it has no value; give one of its sources a value") {
		t.Errorf("a secret without a value: %v", err)
	}
}

// The file with a value is never opened, and a variable is given away only by a higher layer.
func TestSecretAgainstRules(t *testing.T) {
	pol := workspacePolicy(rule(policy.Read, "/home/ana/tokens/t")).With(policy.WithSecret("F@b.example=file:~/tokens/t"))
	_, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, secretive())
	if err == nil || !strings.Contains(err.Error(), "is never opened to a command: it is the source of the secret F (Go API)") {
		t.Errorf("a rule that opens the source: %v", err)
	}
	set := func(layer policy.Layer) string {
		p := workspacePolicy().With(policy.WithSecret("T@a.example"))
		p.Env.Set = []policy.EnvSet{{Name: "T", Value: "given", Origin: policy.Origin{Layer: layer, Source: "x"}}}
		return environ(mustResolve(t, p, Request{Placeholders: map[string]string{"T": "t_PH"}}, machine()))["T"]
	}
	if got := set(policy.LayerUser); got != "t_PH" {
		t.Errorf("a lower layer sets the variable: %q", got)
	}
	if got := set(policy.LayerGrant); got != "given" {
		t.Errorf("a higher layer sets the variable: %q", got)
	}
	if got := set(policy.LayerCommand); got != "t_PH" {
		t.Errorf("the same layer sets the variable: %q", got)
	}
	shown := mustResolve(t, workspacePolicy().With(policy.WithSecret("T@a.example")), Request{}, secretive())
	if got := environ(shown)["T"]; got != shownPlaceholder {
		t.Errorf("in a plan that is only shown the variable is %q", got)
	}
}
