package policy

import (
	"encoding/json"
	"slices"
	"strings"
)

// parsePath reads the short form of a path. A "?" in front makes it optional.
func parsePath(s string) PathRule {
	p, optional := strings.CutPrefix(s, "?")
	return PathRule{Path: p, Optional: optional}
}

func (r *PathRule) fromScalar(_, value string) error {
	*r = parsePath(value)
	return nil
}

func (e *Exemption) fromScalar(_, value string) error {
	e.Folder = value
	return nil
}

func (s *Socket) fromScalar(_, value string) error {
	s.Path, s.Optional = strings.CutPrefix(value, "?")
	return nil
}

func (b *Bind) fromScalar(_, value string) (err error) {
	*b, err = parseBind(value)
	return err
}

// parseBind reads "path", "path:ro", "path:rw", "src:dst", "src:dst:ro" or "src:dst:rw", each
// with an optional leading "?". The colons of "${VAR:-default}" and "urn:cloche:…" do not
// separate. A path that contains a colon needs the long form.
func parseBind(s string) (Bind, error) {
	rest, optional := strings.CutPrefix(s, "?")
	parts := splitBind(rest)
	b := Bind{Optional: optional}
	if last := parts[len(parts)-1]; len(parts) > 1 && (last == "ro" || last == "rw") {
		b.ReadOnly = last == "ro"
		parts = parts[:len(parts)-1]
	}
	if len(parts) > 2 {
		return b, faultf("write path, path:ro, src:dst or src:dst:ro; a path with a colon needs {source: …, target: …}",
			"the bind %q has too many parts", s)
	}
	if slices.Contains(parts, "") {
		return b, faultf("write path, path:ro, src:dst or src:dst:ro", "the bind %q has an empty part", s)
	}
	b.Source = parts[0]
	if len(parts) == 2 {
		b.Target = parts[1]
	}
	return b, nil
}

// splitBind splits at the colons that are not part of a path form.
func splitBind(s string) []string {
	var parts []string
	start, depth := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case i == start && strings.HasPrefix(s[i:], urnPrefix):
			i += len(urnPrefix) - 1
		case strings.HasPrefix(s[i:], "${"):
			depth++
		case s[i] == '}' && depth > 0:
			depth--
		case s[i] == ':' && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// A testEntry claims that one action is allowed or denied. Exactly one of the
// actions is set.
type testEntry struct {
	Read    string `json:"read,omitempty" jsonschema:"A path that is read."`
	Write   string `json:"write,omitempty" jsonschema:"A path that is written."`
	Exec    string `json:"exec,omitempty" jsonschema:"A program that is run."`
	Connect string `json:"connect,omitempty" jsonschema:"A connection: host:port, udp://host:port, icmp://host, GET https://host/path, or the path of a unix socket."`
	Want    string `json:"want" jsonschema:"The expected answer: allow or deny."`
}

// MarshalJSON writes the test in the form of a policy file.
func (t Test) MarshalJSON() ([]byte, error) { return json.Marshal(t.entry()) }

// A testAction is one action of a testEntry with its target.
type testAction struct {
	name   string
	target *string
}

func (t *testEntry) actions() []testAction {
	return []testAction{{"read", &t.Read}, {"write", &t.Write}, {"exec", &t.Exec}, {"connect", &t.Connect}}
}

// set returns the actions that have a target.
func (t *testEntry) set() []testAction {
	return slices.DeleteFunc(t.actions(), func(a testAction) bool { return *a.target == "" })
}

// entry returns the test in the form of a policy file. A test with an unknown action has no
// action there.
func (t Test) entry() testEntry {
	e := testEntry{Want: "deny"}
	if t.Allow {
		e.Want = "allow"
	}
	for _, a := range e.actions() {
		if a.name == t.Action {
			*a.target = t.Target
		}
	}
	return e
}

func (n *networkSection) fromScalar(tag, value string) error {
	var mode NetworkMode
	switch {
	case tag == "!!bool" && isTrue(value):
		mode = NetworkHost
	case tag == "!!bool":
		mode = NetworkNone
	default:
		if err := mode.UnmarshalText([]byte(value)); err != nil {
			return err
		}
	}
	n.Mode = &mode
	return nil
}

func (b *backendSection) fromScalar(_, value string) error {
	b.Name = &value
	return nil
}

// isTrue reads a scalar that the YAML library has resolved to a boolean.
func isTrue(value string) bool { return strings.EqualFold(value, "true") }
