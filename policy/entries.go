package policy

import (
	"slices"
	"strings"
)

// A PathEntry is one path of a list. In a file it is a mapping or the path
// alone; a leading "?" of the latter makes it optional.
type PathEntry struct {
	Path     string `json:"path" jsonschema:"The path: absolute, relative to the file, ~/x, $VAR, ${VAR:-default}, cwd, urn:cloche:workspace; under hide and protect also a pattern with *, **, ?, [ab] and {a,b}."`
	Optional bool   `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the path does not exist."`
	Create   bool   `json:"create,omitempty" jsonschema:"Create the folder, for its owner alone, before the command runs if it does not exist. Only under write."`
	Reason   string `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
}

// ParsePath reads the short form of a path entry.
func ParsePath(s string) PathEntry {
	p, optional := strings.CutPrefix(s, "?")
	return PathEntry{Path: p, Optional: optional}
}

func (e *PathEntry) fromScalar(_, value string) error {
	*e = ParsePath(value)
	return nil
}

// An ExemptEntry is a folder in which patterns do not protect; see [Exemption].
// In a file it is a mapping or the folder alone. What holds no slash is a name.
type ExemptEntry struct {
	Path   string `json:"path" jsonschema:"A folder's name, or a path. Globs are not allowed."`
	Reason string `json:"reason,omitempty" jsonschema:"Why, shown with the exemption."`
}

func (e *ExemptEntry) fromScalar(_, value string) error {
	e.Path = value
	return nil
}

// A SocketEntry is a unix socket that may be connected to. Its short form is
// that of a [PathEntry].
type SocketEntry struct {
	Path     string `json:"path" jsonschema:"The socket's path, @name for an abstract socket, ssh-agent, gpg-agent or datagrams. Globs are not allowed."`
	Optional bool   `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the path does not exist."`
	Reason   string `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
}

// ParseSocket reads the short form of a socket entry.
func ParseSocket(s string) SocketEntry {
	e := ParsePath(s)
	return SocketEntry{Path: e.Path, Optional: e.Optional}
}

func (e *SocketEntry) fromScalar(_, value string) error {
	*e = ParseSocket(value)
	return nil
}

// A BindEntry shows a host path inside. Its short forms are read by [ParseBind].
type BindEntry struct {
	Source   string `json:"source" jsonschema:"The host's path."`
	Target   string `json:"target,omitempty" jsonschema:"The path inside. Default: the same."`
	ReadOnly bool   `json:"read_only,omitempty" jsonschema:"Show it read-only."`
	Optional bool   `json:"optional,omitempty" jsonschema:"Skip the entry, with a notice, if the source does not exist."`
}

// ParseBind reads "path", "path:ro", "path:rw", "src:dst", "src:dst:ro" or
// "src:dst:rw", each with an optional leading "?". The colons of
// "${VAR:-default}" and "urn:cloche:…" do not separate; a path that holds a
// colon needs the long form.
func ParseBind(s string) (BindEntry, error) {
	rest, optional := strings.CutPrefix(s, "?")
	parts := splitBind(rest)
	b := BindEntry{Optional: optional}
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

func (e *BindEntry) fromScalar(_, value string) (err error) {
	*e, err = ParseBind(value)
	return err
}

// A TestEntry claims that one action is allowed or denied. Exactly one of the
// actions is set.
type TestEntry struct {
	Read    string `json:"read,omitempty" jsonschema:"A path that is read."`
	Write   string `json:"write,omitempty" jsonschema:"A path that is written."`
	Exec    string `json:"exec,omitempty" jsonschema:"A program that is run."`
	Connect string `json:"connect,omitempty" jsonschema:"A connection: host:port, udp://host:port, icmp://host, GET http://host/path, or the path of a unix socket."`
	Want    string `json:"want" jsonschema:"The expected answer: allow or deny."`
}

// action returns the name and the target of the action; n is how many are set.
func (t TestEntry) action() (name string, target string, n int) {
	for _, a := range []struct{ name, target string }{
		{"read", t.Read}, {"write", t.Write}, {"exec", t.Exec}, {"connect", t.Connect},
	} {
		if a.target != "" {
			name, target = a.name, a.target
			n++
		}
	}
	return name, target, n
}

func (n *NetworkSection) fromScalar(tag, value string) error {
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

func (b *BackendSection) fromScalar(_, value string) error {
	b.Name = &value
	return nil
}

// isTrue reads a scalar that the YAML library has resolved to a boolean.
func isTrue(value string) bool { return strings.EqualFold(value, "true") }
