package policy

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A Secret is a value that the command can use in requests to some hosts and cannot read. It
// has a placeholder instead, in a variable and in files where programs look for it. On the wire,
// in HTTPS requests to these hosts, cloche replaces the placeholder.
//
// In a file it may also be a text that [ParseSecret] reads.
type Secret struct {
	// Name is the variable that has the placeholder, and what records call the secret.
	Name string `json:"name" jsonschema:"The variable that has the placeholder inside."`
	// Hosts are those that get the value: "api.example.com", "*.example.com", each with an
	// optional ":PORT"; the default is 443. They may be reached by HTTPS, unless another rule
	// says what may be done with them: see [Policy.ImpliedHosts].
	Hosts []string `json:"hosts" jsonschema:"The hosts that get the value: a name or *.name, with a port if it is not 443."`
	// From are places outside that have the value, in the forms of [ParseSource]. The first one
	// that gives something counts. The default is the caller's variable of that name.
	From []string `json:"from,omitempty" jsonschema:"Where the value comes from: env:NAME, file:PATH, command:PROGRAM ARGS, keyring:KEY=VALUE,… or pass:NAME. The first one that has it counts. Default: your variable of that name."`
	// In are the places of a request in which the placeholder is replaced: "header NAME",
	// "query NAME", "json NAME.NAME". The default is the header Authorization.
	In []string `json:"in,omitempty" jsonschema:"Where in a request the placeholder is replaced: header NAME, query NAME or json NAME. Default: header Authorization."`
	// Env are further variables. In their values, and in Files, "{secret}" is the placeholder,
	// and "{basic:USER}" is USER, a colon and the placeholder in base64, as in HTTP's Basic.
	// USER may be "$NAME", a variable of Pass.
	Env map[string]string `json:"env,omitempty" jsonschema:"Further variables. {secret} is the placeholder, {basic:USER} the base64 of USER:placeholder."`
	// Files are shown inside with a text of their own, in place of the real ones.
	Files []SecretFile `json:"files,omitempty" jsonschema:"Files that programs read it from, shown inside in place of the real ones."`
	// Git is the user name with which git inside uses the secret for the hosts, unless empty.
	Git string `json:"git,omitempty" jsonschema:"The user name with which git inside uses the secret over HTTPS, such as x-access-token."`
	// Sign is "aws" for the secret key of an AWS access key: requests are signed again with the
	// real one. Such a key never stands in a request itself.
	Sign string `json:"sign,omitempty" jsonschema:"aws: the secret signs requests (SigV4) and does not stand in them."`
	// Pass are variables of the caller that belong to the secret and are none themselves, such
	// as AWS_ACCESS_KEY_ID. They pass to the command.
	Pass []string `json:"pass,omitempty" jsonschema:"Your variables that belong to it and are not secret, such as a user name. They pass."`
	// Optional: if no source has a value, the command runs without the secret.
	Optional bool `json:"optional,omitempty" jsonschema:"Run without it, with a notice, if there is no value."`
	// Reason is shown with the secret.
	Reason string `json:"reason,omitempty" jsonschema:"Why, shown with the secret."`
	Origin Origin `json:"-"`
}

// A SecretFile is a file that shows a placeholder.
type SecretFile struct {
	// Path is where programs look for it, in the forms of [PathRule]. If the host has no file
	// there, only Variable leads to the text.
	Path string `json:"path" jsonschema:"Where programs look for it, for example ~/.npmrc."`
	// Text is the content; see [Secret].
	Text string `json:"text" jsonschema:"The content, with {secret} or {basic:USER}."`
	// Variable, unless empty, tells programs where the file is. It gets the path of the file, or
	// with a slash at its end, as in "DOCKER_CONFIG/", that of its folder.
	Variable string `json:"variable,omitempty" jsonschema:"A variable that names the file; with a slash at its end, its folder."`
}

// The tokens of [Secret] texts.
const (
	SecretToken = "{secret}"
	basicToken  = "{basic:"
)

// A SourceKind is a kind of place that has a secret's value.
type SourceKind string

// The kinds of sources.
const (
	SourceEnv     SourceKind = "env"     // a variable of cloche's own environment
	SourceFile    SourceKind = "file"    // the content of a file
	SourceCommand SourceKind = "command" // what a program prints
	SourceKeyring SourceKind = "keyring" // an item of the Secret Service, found by its attributes
	SourcePass    SourceKind = "pass"    // the first line of an entry of the program pass
)

// A Source is one place that has a secret's value.
type Source struct {
	Kind SourceKind
	// Name is the variable, the path, or the entry of pass.
	Name string
	// Args are a command's program and arguments.
	Args []string
	// Attributes select an item of the keyring: "key=value".
	Attributes []string
}

const sourceForms = "write env:NAME, file:PATH, command:PROGRAM ARGS, keyring:KEY=VALUE,… or pass:NAME; never the value itself"

// ParseSource reads "env:NAME", "file:PATH", "command:PROGRAM ARGS", "keyring:KEY=VALUE,…" or
// "pass:NAME". Words of a command may be quoted as in a shell, and no shell runs it. Errors do
// not repeat the text: somebody may have written the value.
func ParseSource(text string) (Source, error) {
	kind, rest, ok := strings.Cut(text, ":")
	s := Source{Kind: SourceKind(kind), Name: rest}
	switch {
	case !ok:
		return s, faultf(sourceForms, "the source has no kind")
	case rest == "" || strings.IndexByte(rest, 0) >= 0:
		return s, faultf(sourceForms, "the source names nothing, or holds a NUL byte")
	}
	switch s.Kind {
	case SourceEnv:
		return s, checkSecretName(rest)
	case SourceFile:
		return s, nil
	case SourceCommand:
		s.Name = ""
		if s.Args, ok = shellWords(rest); !ok || len(s.Args) == 0 || s.Args[0] == "" {
			return s, faultf("write command:PROGRAM ARGS, with quotes that are closed", "the command of the source cannot be read")
		}
		return s, nil
	case SourceKeyring:
		s.Name, s.Attributes = "", strings.Split(rest, ",")
		for _, a := range s.Attributes {
			if key, value, ok := strings.Cut(a, "="); !ok || key == "" || value == "" {
				return s, faultf("write keyring:service=github.com,username=me, as secret-tool does", "an attribute of the keyring is not KEY=VALUE")
			}
		}
		return s, nil
	case SourcePass:
		if strings.HasPrefix(rest, "-") {
			return s, faultf("write pass:NAME", "the entry of pass begins with a dash")
		}
		return s, nil
	}
	return s, faultf(sourceForms, "the source has an unknown kind")
}

// String describes the source. It leaves out the arguments of a command.
func (s Source) String() string {
	switch s.Kind {
	case SourceEnv:
		return "the variable " + s.Name
	case SourceFile:
		return "the file " + s.Name
	case SourceCommand:
		return "the command " + s.Args[0]
	case SourceKeyring:
		return "the keyring (" + strings.Join(s.Attributes, ", ") + ")"
	case SourcePass:
		return "pass " + s.Name
	}
	return "an unknown source"
}

// Sources returns where the value comes from. The secret has been validated.
func (s *Secret) Sources() []Source {
	if len(s.From) == 0 {
		return []Source{{Kind: SourceEnv, Name: s.Name}}
	}
	var sources []Source
	for _, text := range s.From {
		if source, err := ParseSource(text); err == nil {
			sources = append(sources, source)
		}
	}
	return sources
}

// shellWords splits a text at spaces, except in single or double quotes.
func shellWords(s string) (words []string, ok bool) {
	var word strings.Builder
	var quote rune
	began := false
	for _, r := range s {
		switch {
		case r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, began = r, true
		case r == ' ' || r == '\t':
			if began {
				words = append(words, word.String())
			}
			word.Reset()
			began = false
		default:
			word.WriteRune(r)
			began = true
		}
	}
	if began {
		words = append(words, word.String())
	}
	return words, quote == 0
}

const secretForms = "write NAME@HOST, NAME@HOST,HOST=SOURCE, or the name of a preset: " // and the presets

// ParseSecret reads "NAME@HOST[,HOST…][=SOURCE]", or the name of a preset for secrets with an
// optional "=SOURCE". Errors do not repeat what is behind the "=".
func ParseSecret(text string) (Secret, error) {
	what, source, hasSource := strings.Cut(text, "=")
	name, hosts, hasHosts := strings.Cut(what, "@")
	s, isPreset := secretPreset(name)
	switch {
	case hasHosts:
		s = Secret{Name: name, Hosts: strings.Split(hosts, ",")}
	case !isPreset:
		return s, faultf(secretForms+strings.Join(SecretPresets(), ", "), "%q names no host, and no preset for a secret", what)
	}
	if hasSource {
		s.From = []string{source}
	}
	return s, s.check()
}

func (s *Secret) fromScalar(_, value string) (err error) {
	*s, err = ParseSecret(value)
	return err
}

// MarshalJSON writes the secret in the form of a policy file: as a text if that is enough,
// otherwise as a mapping.
func (s Secret) MarshalJSON() ([]byte, error) {
	plain := s
	plain.Origin = Origin{}
	texts := SecretPresets()
	if len(s.From) <= 1 {
		texts = append(texts, s.String(), s.String()+"="+strings.Join(s.From, ""))
		for _, name := range SecretPresets() {
			texts = append(texts, name+"="+strings.Join(s.From, ""))
		}
	}
	for _, text := range texts {
		if short, err := ParseSecret(text); err == nil && reflect.DeepEqual(short, plain) {
			return json.Marshal(text)
		}
	}
	type mapping Secret
	return json.Marshal(mapping(s))
}

// String returns the name and the hosts.
func (s Secret) String() string { return s.Name + "@" + strings.Join(s.Hosts, ",") }

// check checks a secret, and brings its hosts into a unique spelling.
func (s *Secret) check() error {
	if err := checkSecretName(s.Name); err != nil {
		return err
	}
	if len(s.Hosts) == 0 {
		return faultf("name the hosts that get it, as in "+s.Name+"@api.example.com", "the secret %s has no host", s.Name)
	}
	s.Hosts = slices.Clone(s.Hosts)
	for i, h := range s.Hosts {
		r, err := s.host(h)
		if err != nil {
			return err
		}
		r.Protocol, r.Paths = "", nil
		if r.Port == 443 {
			r.Port = 0
		}
		s.Hosts[i] = r.String()
	}
	for _, text := range s.From {
		if _, err := ParseSource(text); err != nil {
			return err
		}
	}
	for _, place := range s.In {
		if _, _, err := SecretPlace(place); err != nil {
			return err
		}
	}
	for name, value := range s.Env {
		if err := cmp.Or(checkSecretName(name), s.checkText(value)); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if f.Variable != "" {
			if err := checkSecretName(strings.TrimSuffix(f.Variable, "/")); err != nil {
				return err
			}
		}
		if err := s.checkText(f.Text); err != nil {
			return err
		}
	}
	for _, name := range s.Pass {
		if err := checkSecretName(name); err != nil {
			return err
		}
	}
	switch {
	case s.Sign != "" && s.Sign != "aws":
		return faultf("write sign: aws, or leave it out", "the secret %s has the unknown signature %q", s.Name, s.Sign)
	case s.Sign != "" && len(s.In) > 0:
		return faultf("leave in out, or sign", "the secret %s signs requests and does not stand in them", s.Name)
	case strings.ContainsAny(s.Git, "\x00\n\r'\"\\$`"):
		return faultf("write a plain user name, such as x-access-token", "%q is not a user name for git", s.Git)
	}
	return nil
}

// host reads one of the hosts as a rule about requests inside TLS.
func (s *Secret) host(text string) (HostRule, error) {
	const fix = "write a name such as api.example.com or *.example.com, with a port if it is not 443"
	if strings.Contains(text, "/") || strings.Contains(text, " ") {
		return HostRule{}, faultf(fix, "%q is not a host for the secret %s", text, s.Name)
	}
	r, err := ParseHost("https://" + text)
	switch {
	case err != nil:
		return r, err
	case r.Host == "*":
		return r, faultf(fix, "the secret %s would go to every host", s.Name)
	case !isName(r.Host):
		return r, faultf(fix, "%q is an address: a secret goes to a host that proves its name", text)
	case r.LastPort != 0:
		return r, faultf(fix, "%q is a range of ports", text)
	}
	r.Origin = s.Origin
	r.Reason = cmp.Or(s.Reason, "for the secret "+s.Name)
	return r, nil
}

// HostRules returns the hosts as rules about requests inside TLS. The secret has been validated.
func (s *Secret) HostRules() []HostRule {
	var rules []HostRule
	for _, h := range s.Hosts {
		if r, err := s.host(h); err == nil {
			rules = append(rules, r)
		}
	}
	return rules
}

// ImpliedHosts returns the rules that the secrets add to the allowed hosts: HTTPS with the hosts
// of each secret, except where an own rule of the policy is about the same host and port. Such a
// rule says exactly what may be done there, and a secret does not widen it.
func (p *Policy) ImpliedHosts() []HostRule {
	var implied []HostRule
	for i := range p.Secrets {
		for _, r := range p.Secrets[i].HostRules() {
			own := func(o HostRule) bool { return o.overlaps(r) }
			if !slices.ContainsFunc(p.Network.Allow, own) && !slices.ContainsFunc(implied, func(o HostRule) bool { return o.Host == r.Host && o.Port == r.Port }) {
				implied = append(implied, r)
			}
		}
	}
	return implied
}

// NeedsInspection reports whether cloche has to look inside TLS: a rule is about requests
// there, or a command can use a secret.
func (p *Policy) NeedsInspection() bool {
	https := func(r HostRule) bool { return r.Protocol == HTTPS }
	return p.Network.Mode == NetworkUser && (len(p.Secrets) > 0 || slices.ContainsFunc(p.Network.Allow, https) || slices.ContainsFunc(p.Network.Deny, https))
}

// overlaps reports whether a rule is about the host of another one, for one port, or about some
// of its hosts.
func (r HostRule) overlaps(o HostRule) bool {
	if r.Protocol == "udp" || r.Protocol == "icmp" || r.Port != 0 && (o.Port < r.Port || o.Port > max(r.Port, r.LastPort)) {
		return false
	}
	return hostWithin(r.Host, o.Host) || hostWithin(o.Host, r.Host)
}

// hostWithin reports whether all names of host, a name or "*.name", are names of pattern.
func hostWithin(pattern, host string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*")
	return pattern == host || wild && strings.HasSuffix(host, suffix)
}

// checkText requires that each token of a text is closed.
func (s *Secret) checkText(text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return faultf("remove it", "a text of the secret %s holds a NUL byte", s.Name)
	}
	for _, rest := range strings.Split(text, basicToken)[1:] {
		user, _, ok := strings.Cut(rest, "}")
		if name, isVariable := strings.CutPrefix(user, "$"); !ok || user == "" || strings.Contains(user, ":") || isVariable && !slices.Contains(s.Pass, name) {
			return faultf("write {basic:USER}, or {basic:$NAME} with NAME under pass", "a text of the secret %s has a {basic: that names no user", s.Name)
		}
	}
	return nil
}

// Expand replaces the tokens of a text by a placeholder. basic returns the base64 of a user and
// the placeholder, where the user may be "$NAME".
func (s *Secret) Expand(text, placeholder string, basic func(user string) string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, basicToken)
		out.WriteString(strings.ReplaceAll(before, SecretToken, placeholder))
		user, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return out.String()
		}
		out.WriteString(basic(user))
		text = after
	}
}

// SecretPlace reads a place of a request: its kind, "header", "query" or "json", and its name.
func SecretPlace(text string) (kind, name string, err error) {
	const forms = "write header NAME, query NAME or json NAME"
	kind, name, _ = strings.Cut(text, " ")
	switch {
	case kind != "header" && kind != "query" && kind != "json":
		return "", "", faultf(forms, "%q is not a place of a request", text)
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' }):
		return "", "", faultf(forms, "%q names no place of a request", text)
	}
	return kind, name, nil
}

func checkSecretName(name string) error {
	letter := func(r rune) bool { return r == '_' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' }
	for i, r := range name {
		if !letter(r) && (i == 0 || r < '0' || r > '9') {
			name = ""
		}
	}
	if name == "" {
		return faultf("write letters, digits and _, as in GITHUB_TOKEN", "the name of a secret or of its variable is not one of a variable")
	}
	return nil
}

// secrets checks the secrets, and reports a name that is there twice.
func (c *checker) secrets() {
	seen := map[string]string{}
	for i := range c.doc.Secrets {
		s, field := &c.doc.Secrets[i], indexed("secrets", i)
		c.fail(field, s.check())
		for j := range s.Files {
			c.settle(joinField(field, indexed("files", j)), &s.Files[j].Path, pathUse{})
		}
		for j, text := range s.From {
			if path, ok := strings.CutPrefix(text, "file:"); ok && path != "" {
				c.settle(field, &path, pathUse{})
				s.From[j] = "file:" + path
			}
		}
		if first, twice := seen[s.Name]; twice && !c.merged {
			c.failf(field, "keep one of them, with all hosts", "the secret %s is already there%s", s.Name, c.where(first))
		}
		seen[s.Name] = field
	}
}

// secrets merges the secrets. A project's file has none, even if it is trusted: where a secret
// goes, and which program outside is asked for it, is for the user to say and not for what a
// repository ships.
func (m *merger) secrets(l layered) {
	if len(l.doc.Secrets) == 0 {
		return
	}
	if l.layer == LayerProject {
		m.ignored = append(m.ignored, Ignored{Text: "secrets are ignored: only your own policy and options name them", Origin: l.origin("secrets"), Never: true})
		return
	}
	p, added := &m.policy, false
	for i, s := range l.doc.Secrets {
		o, ok := m.loosen(l, indexed("secrets", i), "secret %s", s)
		if !ok {
			continue
		}
		s = s.clone()
		s.Origin, added = o, true
		p.Secrets = append(slices.DeleteFunc(p.Secrets, func(other Secret) bool { return other.Name == s.Name }), s)
	}
	if added && (l.doc.Network == nil || l.doc.Network.Mode == nil) {
		implied := NetworkUser
		mergeEnum(m, l, "secrets", &implied, &p.Network.Mode, &p.Network.Origin)
	}
}

func (s Secret) clone() Secret {
	s.Hosts, s.From, s.In = slices.Clone(s.Hosts), slices.Clone(s.From), slices.Clone(s.In)
	s.Env, s.Files, s.Pass = maps.Clone(s.Env), slices.Clone(s.Files), slices.Clone(s.Pass)
	return s
}

func cloneSecrets(secrets []Secret) []Secret {
	secrets = slices.Clone(secrets)
	for i := range secrets {
		secrets[i] = secrets[i].clone()
	}
	return secrets
}

// WithSecret lets commands use a secret without seeing it, in the forms of [ParseSecret].
func WithSecret(texts ...string) Option { return Set("secrets", texts...) }
