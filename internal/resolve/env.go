package resolve

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// scrubbedNames are the caller's variables that pass by default.
var scrubbedNames = append([]string{"HOME", "USER", "LOGNAME", "PATH", "LANG", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "SHELL"}, certificateNames...)

// certificateNames are variables that name files or folders of trusted certificates. In a
// network with its own certificate authority, nothing can be downloaded without them.
var certificateNames = []string{"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}

// deniedNames never pass from the caller's environment. The first group leads to sockets,
// agents and displays that can act for the user outside; the second looks like secrets.
// Matching ignores case.
var deniedNames = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_*", "XDG_RUNTIME_DIR", "DOCKER_*", "CONTAINER_HOST", "PODMAN_HOST",
	"DISPLAY", "WAYLAND_*", "XAUTHORITY", "GPG_AGENT_INFO", "GPG_TTY", "*_ASKPASS", "GNOME_KEYRING_*", "SUDO_*",
	"TMUX", "TMUX_PANE", "STY", "VSCODE_IPC_*", "VSCODE_GIT_*", "NVIM", "NVIM_LISTEN_ADDRESS", "KITTY_LISTEN_ON", "I3SOCK", "SWAYSOCK",

	"*TOKEN*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*APIKEY*", "*API_KEY*", "*ACCESS_KEY*", "*PRIVATE_KEY*",
	"*CREDENTIAL*", "*_CRED", "*_CREDS", "*_PAT", "AUTH", "AUTH_*", "*_AUTH", "*_AUTH_*", "*AUTHORIZATION*", "*BEARER*", "*COOKIE*",
	"JWT", "JWT_*", "*_JWT", "*_JWT_*", "KEY", "*_KEY", "*_KEYS", "KEY_*", "*_KEY_BASE", "*_KEY_PEM", "*_KEY_B64", "*_KEY_BASE64", "*PASSCODE*",
	"PASS", "PASS_*", "*_PASS", "*_PASS_*", "DBPASS", "PGPASS", "*_PW", "*_PWD", "*_PIN", "*_OTP", "*_TOTP*", "*_MFA*", "*_SAS", "*_SALT", "*WEBHOOK*",
	"*CONNECTION_STRING*", "*CONNECTIONSTRING*", "*_CONN_STR", "DSN", "*_DSN", "*DATABASE_URL*", "REDIS_URL", "MONGO*_URI", "MONGO*_URL",
	"AWS_*", "AZURE_*", "GOOGLE_*", "GCLOUD_*", "KUBECONFIG", "VAULT_*", "NETRC", "PGPASSFILE", "MYSQL_PWD",
}

// environment decides which variables the command gets.
func (b *builder) environment() {
	vars := map[string]plan.Var{}
	var held []string
	withheld := b.withheld()
	for _, kv := range b.snap.Environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		origin, passes := b.passes(name)
		if !passes {
			continue
		}
		why := b.heldBack(name, value)
		if slices.Contains(withheld, name) {
			why = "a secret of the policy"
		}
		if why != "" {
			held = append(held, name)
			b.denyVar(name, why, origin)
			continue
		}
		vars[name] = plan.Var{Name: name, Value: value, Origin: origin}
		if slices.Contains(certificateNames, name) {
			b.noteCertificates(name, value, origin)
		}
	}
	b.reportHeld(held)
	b.home(vars)
	b.grantVariables(vars)
	b.proxyVariables(vars)
	b.secretVariables(vars)
	b.setVariables(vars)
	b.trustVariables(vars)
	b.gitCredentials(vars)
	b.nameSandbox(vars)
	for _, v := range vars {
		b.plan.Env = append(b.plan.Env, v)
	}
	sort.Slice(b.plan.Env, func(i, j int) bool { return b.plan.Env[i].Name < b.plan.Env[j].Name })
}

// noteCertificates adds a notice for each file in a variable that exists and that the command
// cannot read. It does not make the file readable, because the variable may name any file.
func (b *builder) noteCertificates(name, value string, o policy.Origin) {
	for file := range strings.SplitSeq(value, ":") {
		if !path.IsAbs(file) {
			continue
		}
		real, err := b.fs.follow(path.Clean(file))
		if err != nil || real.missing() {
			continue
		}
		if line := b.plan.Lookup(real.path); line.Access == policy.Hidden || line.Content != plan.Host {
			b.notice(plan.NoticeInfo, fmt.Sprintf("env %s: it names %s, which the command cannot read; allow it with --ro %[2]s", name, file), o)
		}
	}
}

// passes reports whether the policy passes a variable, and by which rule.
func (b *builder) passes(name string) (policy.Origin, bool) {
	for _, p := range b.policy.Env.Pass {
		if matchName(p.Name, name) {
			return p.Origin, true
		}
	}
	switch b.policy.Env.Mode {
	case policy.EnvInherit:
		return b.policy.Env.Origin, true
	case policy.EnvScrubbed:
		for _, p := range scrubbedNames {
			if matchName(p, name) {
				return b.policy.Env.Origin, true
			}
		}
	case policy.EnvList:
	}
	return policy.Origin{}, false
}

// heldBack returns why a variable does not pass although the policy passes it: its name or its
// value looks like a secret, or it gives access to something outside. A name in a built-in
// preset is trusted, but its value is checked anyway.
func (b *builder) heldBack(name, value string) string {
	known := slices.ContainsFunc(b.policy.Env.Pass, func(p policy.EnvPass) bool {
		return p.Name == name && (p.Origin.Layer == policy.LayerPreset || p.Origin.Layer == policy.LayerTool)
	})
	if pattern := deniedBy(name); pattern != "" && !known {
		return pattern
	}
	return secretValue(value)
}

// reportHeld adds a notice with the variables that do not pass although the mode is inherit.
func (b *builder) reportHeld(names []string) {
	if len(names) == 0 || b.policy.Env.Mode != policy.EnvInherit {
		return
	}
	sort.Strings(names)
	b.notice(plan.NoticeInfo, fmt.Sprintf("env: inherit holds back what looks like a secret or a way out: %s; hand one over knowingly with --env NAME=VALUE", strings.Join(names, ", ")), b.policy.Env.Origin)
}

// denyVar adds a notice if the policy asks for the variable by its exact name.
func (b *builder) denyVar(name, pattern string, o policy.Origin) {
	for _, p := range b.policy.Env.Pass {
		if p.Name == name {
			b.notice(plan.NoticeDropped, fmt.Sprintf("env.pass %s: held back as a secret or a way out (%s); hand it over knowingly with --env %s=VALUE", name, pattern, name), o)
			return
		}
	}
}

// home sets HOME if the policy sets a value for it.
func (b *builder) home(vars map[string]plan.Var) {
	h := b.policy.Home
	if h.Value == "" {
		return
	}
	if value, ok := b.expand("home.value", h.Value, h.Origin); ok {
		vars["HOME"] = plan.Var{Name: "HOME", Value: value, Origin: h.Origin}
	}
}

// deniedBy returns the pattern of the denylist that a name matches, or "".
func deniedBy(name string) string {
	upper := strings.ToUpper(name)
	for _, p := range deniedNames {
		if matchName(p, upper) {
			return p
		}
	}
	return ""
}

// matchName reports whether a name matches a pattern whose only special character is "*".
func matchName(pattern, name string) bool {
	if strings.IndexByte(pattern, '*') < 0 {
		return pattern == name
	}
	first, rest, _ := strings.Cut(pattern, "*")
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}
