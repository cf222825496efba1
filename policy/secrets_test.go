package policy

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// N14: the short form of a secret.
func TestParseSecret(t *testing.T) {
	for text, want := range map[string]Secret{
		"TOKEN@api.example.com":                     {Name: "TOKEN", Hosts: []string{"api.example.com"}},
		"T_1@API.example.com:443,*.example.com:444": {Name: "T_1", Hosts: []string{"api.example.com", "*.example.com:444"}},
		"T@a.example=env:OTHER":                     {Name: "T", Hosts: []string{"a.example"}, From: []string{"env:OTHER"}},
		"T@a.example=file:~/t=x,y":                  {Name: "T", Hosts: []string{"a.example"}, From: []string{"file:~/t=x,y"}},
		"T@a.example=command:gh auth token":         {Name: "T", Hosts: []string{"a.example"}, From: []string{"command:gh auth token"}},
		"T@a.example=keyring:service=gh,user=me":    {Name: "T", Hosts: []string{"a.example"}, From: []string{"keyring:service=gh,user=me"}},
		"T@a.example=pass:web/gh":                   {Name: "T", Hosts: []string{"a.example"}, From: []string{"pass:web/gh"}},
	} {
		got, err := ParseSecret(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
			continue
		}
		written, err := json.Marshal(got)
		var again string
		if err != nil || json.Unmarshal(written, &again) != nil {
			t.Errorf("%s is written as %s, %v", text, written, err)
		} else if back, err := ParseSecret(again); err != nil || !reflect.DeepEqual(back, got) {
			t.Errorf("%s is written as %s, which reads as %+v, %v", text, again, back, err)
		}
	}
}

// F4 N14: each error says what to write, and none repeats what may be the value itself.
func TestSecretErrors(t *testing.T) {
	const value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for text, want := range map[string]string{
		"TOKEN":                                "names no host",
		"TOKEN=" + value:                       "names no host",
		"TOKEN@":                               "the host is empty",
		"@a.example":                           "not one of a variable",
		"A-B@a.example":                        "not one of a variable",
		"TOKEN@*":                              "would go to every host",
		"TOKEN@*:443":                          "would go to every host",
		"TOKEN@10.0.0.1":                       "is an address",
		"TOKEN@10.0.0.0/8":                     "is not a host",
		"TOKEN@a.example:1-9":                  "is a range of ports",
		"TOKEN@http://a.example":               "is not a host",
		"TOKEN@a.example/v1":                   "is not a host",
		"TOKEN@GET a.example":                  "is not a host",
		"TOKEN@a.example=" + value:             "the source has no kind; write env:NAME, file:PATH",
		"TOKEN@a.example=value:" + value:       "unknown kind",
		"TOKEN@a.example=":                     "the source has no kind",
		"TOKEN@a.example=env:" + value + "-":   "not one of a variable",
		"TOKEN@a.example=command:'gh " + value: "cannot be read",
		"TOKEN@a.example=keyring:" + value:     "is not KEY=VALUE",
		"TOKEN@a.example=pass:-c":              "begins with a dash",
		"gh=" + value:                          "the source has no kind",
		"nosuch=file:/x":                       "write NAME@HOST, NAME@HOST,HOST=SOURCE, or the name of a preset: anthropic, aws, cargo",
	} {
		_, err := ParseSecret(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), value) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if _, err = Parse("f", []byte("secrets: ["+string(must(json.Marshal(text)))+"]\n")); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s in a file: got %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"{name: T, hosts: []}":                                                  `the secret T has no host`,
		"{name: T, hosts: [a.example], in: [body]}":                             `"body" is not a place of a request`,
		"{name: T, hosts: [a.example], in: [header]}":                           `names no place`,
		"{name: T, hosts: [a.example], sign: gpg}":                              `unknown signature`,
		"{name: T, hosts: [a.example], sign: aws, in: [query a]}":               `does not stand in them`,
		"{name: T, hosts: [a.example], git: \"a'b\"}":                           `is not a user name for git`,
		"{name: T, hosts: [a.example], env: {A: '{basic:}'}}":                   `names no user`,
		"{name: T, hosts: [a.example], env: {A: '{basic:$B}'}}":                 `names no user`,
		"{name: T, hosts: [a.example], files: [{path: ~/x, text: '{basic:a'}]}": `names no user`,
		"{name: T, hosts: [a.example], from: \"file:x\"}":                       `must be a list of texts`,
		"T@a.example, T@b.example":                                              `the secret T is already there on line 1`,
	} {
		if _, err := Parse("f", []byte("secrets: ["+text+"]\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// N14: secrets of the user and of the command line imply their hosts. No project has any, even if
// it is trusted, and neither does a preset that it names.
func TestSecretsMerge(t *testing.T) {
	user := Layered{Doc: mustParse(t, "user.yaml", "secrets: [gh, T@a.example]\nnetwork: {allow: [https://github.com/me/**]}"), Layer: LayerUser}
	command := Layered{Doc: mustParse(t, "command", "secrets: [T@b.example=env:X]"), Layer: LayerCommand}
	p, _, err := Merge(user, command)
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(p.Secrets); got != "GH_TOKEN@api.github.com,github.com,uploads.github.com (user.yaml:1) T@b.example (command:1)" {
		t.Errorf("secrets: %s", got)
	}
	if p.Network.Mode != NetworkUser {
		t.Errorf("the mode is %s", p.Network.Mode)
	}
	var implied []string
	for _, r := range p.ImpliedHosts() {
		implied = append(implied, r.String())
	}
	if want := []string{"https://api.github.com", "https://uploads.github.com", "https://b.example"}; !slices.Equal(implied, want) {
		t.Errorf("implied %q, want %q", implied, want)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for _, untrusted := range []bool{false, true} {
		project := Layered{Doc: mustParse(t, "p", "secrets: [gh, EVIL@evil.example=file:/etc/passwd]"), Layer: LayerProject, Untrusted: untrusted}
		p, ignored, err := Merge(project)
		if err != nil || len(p.Secrets) != 0 || p.Network.Mode != NetworkNone || len(ignored) != 1 || !ignored[0].Never {
			t.Errorf("untrusted %t: a project's secrets: %v, mode %s, ignored %v, %v", untrusted, p.Secrets, p.Network.Mode, ignored, err)
		}
	}
}

func describe(secrets []Secret) string {
	var out []string
	for _, s := range secrets {
		out = append(out, s.String()+" ("+s.Origin.String()+")")
	}
	return strings.Join(out, " ")
}

// A secret widens no rule that names one of its hosts, and is not widened by one for another.
func TestImpliedHosts(t *testing.T) {
	for allow, want := range map[string]string{
		"":                                 "https://*.a.example https://b.example:8443",
		"https://x.a.example/v1/**":        "https://b.example:8443",
		"*.example:443":                    "https://b.example:8443",
		"*":                                "",
		"a.example:443":                    "https://*.a.example https://b.example:8443",
		"b.example:8000-9000":              "https://*.a.example",
		"b.example":                        "https://*.a.example",
		"udp://b.example":                  "https://*.a.example https://b.example:8443",
		"xa.example:443":                   "https://*.a.example https://b.example:8443",
		"POST http://b.example:8443/other": "https://*.a.example",
	} {
		p := Policy{}.With(Set("secrets", "T@*.a.example,b.example:8443", "U@b.example:8443"))
		if allow != "" {
			p = p.With(AllowHosts(allow))
		}
		var got []string
		for _, r := range p.ImpliedHosts() {
			got = append(got, r.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("with %q: %q, want %q", allow, got, want)
		}
	}
}

// Each preset is a valid secret, and its files have the placeholder.
func TestSecretPresets(t *testing.T) {
	for _, name := range SecretPresets() {
		s, err := ParseSecret(name)
		if err != nil || s.Reason == "" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		for _, f := range s.Files {
			if text := s.Expand(f.Text, "PLACEHOLDER", func(user string) string { return "BASIC" + user }); !strings.Contains(text, "PLACEHOLDER") && !strings.Contains(text, "BASIC") || strings.Contains(text, "{secret}") || strings.Contains(text, "{basic") {
				t.Errorf("%s: %s has the text %q", name, f.Path, text)
			}
		}
		if text, err := json.Marshal(s); err != nil || string(text) != `"`+name+`"` {
			t.Errorf("%s is written as %s, %v", name, text, err)
		}
		own, err := ParseSecret(name + "=pass:x")
		if err != nil || !slices.Equal(own.From, []string{"pass:x"}) {
			t.Errorf("%s with a source of its own: %+v, %v", name, own, err)
		}
	}
	p := Policy{}.With(WithSecret(SecretPresets()...))
	if err := p.Validate(); err != nil || len(p.Secrets) != len(SecretPresets()) {
		t.Errorf("%d secrets, %v", len(p.Secrets), err)
	}
}

func TestSources(t *testing.T) {
	s, err := ParseSource(`command:gh "auth token" '' x'y z'`)
	if want := []string{"gh", "auth token", "", "xy z"}; err != nil || !slices.Equal(s.Args, want) {
		t.Errorf("the words are %q, %v; want %q", s.Args, err, want)
	}
	if got := s.String(); got != "the command gh" {
		t.Errorf("the command is described as %q", got)
	}
}
