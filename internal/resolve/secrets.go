package resolve

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file puts the placeholders of secrets where programs look for the secrets, and keeps the
// places away that have the values.

// shownPlaceholder stands for the placeholders in a plan that is only shown.
const shownPlaceholder = "PLACEHOLDER"

// usableSecrets returns the secrets that the command can use: requests are judged, and there is a
// value.
func (b *builder) usableSecrets() []policy.Secret {
	if b.policy.Network.Mode != policy.NetworkUser {
		return nil
	}
	if b.req.Placeholders == nil {
		return b.policy.Secrets
	}
	return slices.DeleteFunc(slices.Clone(b.policy.Secrets), func(s policy.Secret) bool { return b.req.Placeholders[s.Name] == "" })
}

// secrets adds the secrets to the plan, and the files that have placeholders. Files with values
// are hidden, also those of secrets that the command cannot use.
func (b *builder) secrets() {
	usable := b.usableSecrets()
	for i := range b.policy.Secrets {
		s := &b.policy.Secrets[i]
		for _, source := range s.Sources() {
			if source.Kind == policy.SourceFile {
				b.hideSource(s, source.Name)
			}
		}
		switch {
		case slices.ContainsFunc(usable, func(o policy.Secret) bool { return o.Name == s.Name }):
		case b.policy.Network.Mode != policy.NetworkUser:
			b.notice(plan.NoticeDropped, fmt.Sprintf("secrets %s: the command cannot use it, because the network mode is %s", s.Name, b.policy.Network.Mode), s.Origin)
		case s.Optional:
			b.notice(plan.NoticeSkipped, fmt.Sprintf("secrets %s: it has no value", s.Name), s.Origin)
		default:
			b.fail(&PolicyError{Rule: "secrets", Path: s.Name, Origin: s.Origin, Reason: "it has no value", Fix: "give one of its sources a value, or write optional: true"})
		}
	}
	for i := range usable {
		s := &usable[i]
		shown := plan.Secret{Name: s.Name, In: s.In, Sign: s.Sign, Placeholder: b.placeholder(s), Sources: s.Sources(), Reason: s.Reason, Origin: s.Origin}
		for _, r := range s.HostRules() {
			shown.Hosts = append(shown.Hosts, plan.HostPort(r))
		}
		b.plan.Secrets = append(b.plan.Secrets, shown)
		for _, f := range s.Files {
			b.secretFile(s, f)
		}
	}
}

// withheld returns the variables that may have the values of secrets. They do not pass, whatever
// they are called.
func (b *builder) withheld() []string {
	var names []string
	for i := range b.policy.Secrets {
		s := &b.policy.Secrets[i]
		names = append(names, s.Name)
		for name := range s.Env {
			names = append(names, name)
		}
		for _, source := range s.Sources() {
			if source.Kind == policy.SourceEnv {
				names = append(names, source.Name)
			}
		}
	}
	return names
}

// inspectedHosts adds the hosts of the secrets to the network.
func (b *builder) inspectedHosts() {
	to := &b.plan.Network
	for i := range b.plan.Secrets {
		to.Inspect = append(to.Inspect, b.plan.Secrets[i].Hosts...)
	}
	usable := b.policy
	usable.Secrets = b.usableSecrets()
	to.Allow = append(to.Allow, hostPorts(usable.ImpliedHosts())...)
}

func (b *builder) placeholder(s *policy.Secret) string {
	if b.req.Placeholders == nil {
		return shownPlaceholder
	}
	return b.req.Placeholders[s.Name]
}

// secretText fills the tokens of a text.
func (b *builder) secretText(s *policy.Secret, text string) string {
	placeholder := b.placeholder(s)
	return s.Expand(text, placeholder, func(user string) string {
		if name, ok := strings.CutPrefix(user, "$"); ok {
			user, _ = b.getenv(name)
		}
		return base64.StdEncoding.EncodeToString([]byte(user + ":" + placeholder))
	})
}

// hideSource hides the file that has a secret's value. No rule opens it.
func (b *builder) hideSource(s *policy.Secret, file string) {
	real, ok := b.expandReal("secrets", file, s.Origin)
	if !ok || real.missing() {
		return // the source reports that it is missing
	}
	b.add(candidate{locked: true, links: real.links, Path: plan.Path{Path: real.path, Kind: real.info.Kind, Access: policy.Hidden, Content: plan.Empty,
		Reason: "it is the source of the secret " + s.Name, Origin: s.Origin}})
}

// secretFile shows a file with the placeholder in place of the real one. A backend without
// mounts would show the real one, which is hidden there.
func (b *builder) secretFile(s *policy.Secret, f policy.SecretFile) {
	real, ok := b.expandReal("secrets", f.Path, s.Origin)
	if !ok {
		return
	}
	b.candidates = slices.DeleteFunc(b.candidates, func(c candidate) bool { return c.Path.Path == real.path && c.Origin == s.Origin }) // it is the source, too
	line := plan.Path{Path: real.path, Kind: hostfs.File, Access: policy.Read, Content: plan.Text, Text: b.secretText(s, f.Text),
		Written: written(f.Path, real.path), Reason: "it has the placeholder of the secret " + s.Name, Origin: s.Origin}
	switch {
	case real.missing() && f.Variable == "", real.missing() && b.req.NoMounts:
		return // nothing may be created on the host
	case real.missing():
		line.Path = ownSecretPath(s, real.path)
		b.secretTexts = append(b.secretTexts, line)
		return
	case real.info.Kind != hostfs.File:
		b.fail(&PolicyError{Rule: "secrets", Path: f.Path, Origin: s.Origin, Reason: "is a " + kindName(real.info.Kind) + ", not a file", Fix: "name another path under files"})
		return
	case b.req.NoMounts:
		line.Access, line.Content, line.Text = policy.Hidden, plan.Empty, ""
		b.notice(plan.NoticeInfo, fmt.Sprintf("secrets %s: %s stays hidden, because without mounts nothing can be shown in its place", s.Name, f.Path), s.Origin)
	}
	b.add(candidate{locked: true, links: real.links, Path: line})
}

// secretPath returns where the command finds a secret's file: at its own path, or, where the
// host has no such file, in a folder of the sandbox. ok is false if it does not find it.
func (b *builder) secretPath(s *policy.Secret, f policy.SecretFile) (at string, ok bool) {
	at, err := pathx.Expand(f.Path, b.vars)
	if err != nil || b.req.NoMounts {
		return "", false
	}
	real, err := b.fs.follow(at)
	switch {
	case err != nil:
		return "", false
	case real.missing():
		return ownSecretPath(s, real.path), true
	}
	return real.path, true
}

// ownSecretPath is the place in the sandbox of a file that the host does not have.
func ownSecretPath(s *policy.Secret, file string) string {
	return path.Join(wellknown.SecretFolder, s.Name, path.Base(file))
}

// secretVariables sets the variables of the secrets, unless a higher layer sets them.
func (b *builder) secretVariables(vars map[string]plan.Var) {
	set := func(s *policy.Secret, name, value string) {
		vars[name] = plan.Var{Name: name, Value: value, Origin: s.Origin}
	}
	usable := b.usableSecrets()
	for i := range usable {
		s := &usable[i]
		for _, name := range s.Pass {
			if value, ok := b.snap.Getenv(name); ok {
				set(s, name, value)
			}
		}
		for name, text := range s.Env {
			set(s, name, b.secretText(s, text))
		}
		for _, f := range s.Files {
			if at, ok := b.secretPath(s, f); ok && f.Variable != "" {
				name, folder := strings.CutSuffix(f.Variable, "/")
				if folder {
					at = path.Dir(at)
				}
				set(s, name, at)
			}
		}
		set(s, s.Name, b.placeholder(s))
	}
}

// setVariables applies env.set. A secret wins over a layer that is not above its own: a value
// that a lower layer has may be the secret itself.
func (b *builder) setVariables(vars map[string]plan.Var) {
	usable := b.usableSecrets()
	for _, set := range b.policy.Env.Set {
		i := slices.IndexFunc(usable, func(s policy.Secret) bool {
			_, also := s.Env[set.Name]
			return s.Name == set.Name || also
		})
		if i < 0 || set.Origin.Layer > usable[i].Origin.Layer {
			vars[set.Name] = plan.Var{Name: set.Name, Value: set.Value, Origin: set.Origin}
		}
	}
}

// gitCredentials makes git use the placeholders, by settings in variables. The first, empty
// helper of a host drops those of the user's settings, which ask for the real secret.
func (b *builder) gitCredentials(vars map[string]plan.Var) {
	count, err := strconv.Atoi(vars["GIT_CONFIG_COUNT"].Value)
	if err != nil || count < 0 {
		count = 0
	}
	first := count
	var origin policy.Origin
	usable := b.usableSecrets()
	for i := range usable {
		s := &usable[i]
		if s.Git == "" {
			continue
		}
		origin = s.Origin
		helper := fmt.Sprintf(`!f() { test "$1" = get && echo "username=%s" && echo "password=$%s"; }; f`, s.Git, s.Name)
		for _, host := range s.Hosts {
			for _, value := range []string{"", helper} {
				n := strconv.Itoa(count)
				vars["GIT_CONFIG_KEY_"+n] = plan.Var{Name: "GIT_CONFIG_KEY_" + n, Value: "credential.https://" + host + ".helper", Origin: s.Origin}
				vars["GIT_CONFIG_VALUE_"+n] = plan.Var{Name: "GIT_CONFIG_VALUE_" + n, Value: value, Origin: s.Origin}
				count++
			}
		}
	}
	if count > first {
		vars["GIT_CONFIG_COUNT"] = plan.Var{Name: "GIT_CONFIG_COUNT", Value: strconv.Itoa(count), Origin: origin}
	}
}

// showSecrets adds the files that the host does not have.
func (b *builder) showSecrets() {
	for i := range b.secretTexts {
		b.showText(b.secretTexts[i].Path, b.secretTexts[i].Text, b.secretTexts[i].Origin)
	}
}
