package pathx

import (
	"path"
	"strings"
)

// Vars are the values that Expand uses; it uses nothing else. An empty field counts as unset.
// Document is the folder of the document that an embedding editor shows.
type Vars struct {
	Home, Cwd, Workspace, Document string
	// Self is the program that makes the sandbox.
	Self string

	// Env looks up an environment variable; nil means an empty environment.
	Env func(name string) (string, bool)
	// Pattern: the expanded text is a pattern. Special characters in places and values of
	// variables are quoted.
	Pattern bool
}

// Literal returns a path in the form of a policy: each dollar sign is doubled, so that it does
// not start a variable.
func Literal(p string) string { return strings.ReplaceAll(p, "$", "$$") }

// Check reports whether Expand can parse a path form, whatever the values are. It does not
// report a relative path. The errors are *SyntaxError and *UnknownURNError.
func Check(s string) error {
	p := parser{in: s}
	_, err := p.template(true, 0)
	return err
}

// Expand turns one of the path forms of a policy into a clean absolute path:
//
//	/abs/path
//	~  ~/sub
//	cwd  cwd/sub
//	urn:cloche:cwd  urn:cloche:workspace  urn:cloche:document  (each with /sub)
//	urn:cloche:self
//	$VAR  ${VAR}  ${VAR:-default}  anywhere; the default may hold any form
//	$$  a literal dollar
//
// The forms "~", "cwd" and "urn:" are only recognized at the beginning of the path, which
// includes the default of a variable at the beginning. A variable that is set but empty counts
// as unset.
//
// The value of a variable is used as it is and never expanded again: otherwise a value such as
// "~/.ssh" or "$SECRET_DIR" could make a rule apply to a path that it does not name.
// Components ".." are removed lexically; the caller resolves symbolic links.
//
// The whole string is parsed before any variable is looked up, so whether it is well formed
// never depends on the environment. The errors are *SyntaxError, *UnknownURNError,
// *UnsetError, *RelativeError and *ValueError.
func Expand(s string, v Vars) (string, error) {
	if out, ok := v.plain(s); ok {
		return out, nil
	}
	nodes, err := parsed(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := v.write(&b, nodes); err != nil {
		return "", err
	}
	out := b.String()
	if !strings.HasPrefix(out, "/") {
		return "", &RelativeError{Input: s, Path: out}
	}
	return path.Clean(out), nil
}

// write appends the value of each node to b.
func (v Vars) write(b *strings.Builder, nodes []node) error {
	for _, n := range nodes {
		if err := v.writeNode(b, n); err != nil {
			return err
		}
	}
	return nil
}

func (v Vars) writeNode(b *strings.Builder, n node) error {
	if n.kind == literalNode {
		b.WriteString(n.text)
		return nil
	}
	value := v.lookup(n)
	switch {
	case strings.ContainsRune(value, 0):
		return &ValueError{Name: n.text}
	case value != "":
		b.WriteString(v.quoted(value))
		return nil
	case n.hasDefault:
		return v.write(b, n.fallback)
	default:
		return &UnsetError{Name: n.text}
	}
}

// lookup returns the value of a place or a variable; empty means unset.
func (v Vars) lookup(n node) string {
	if n.kind == placeNode {
		return v.place(n.text)
	}
	if v.Env == nil {
		return ""
	}
	value, _ := v.Env(n.text)
	return value
}

// place returns the path for one of the fixed names of isPlace.
func (v Vars) place(name string) string {
	switch name {
	case "~":
		return v.Home
	case "cwd", urnPrefix + "cwd":
		return v.Cwd
	case urnPrefix + "workspace":
		return v.Workspace
	case urnPrefix + "document":
		return v.Document
	case urnPrefix + "self":
		return v.Self
	}
	return ""
}

// plain expands the two forms of nearly every rule without parsing: absolute paths, and paths
// below the home folder. The default presets have 1,500 of them, which are expanded at every
// start: calling path.Join for each would take a third of a millisecond more.
func (v Vars) plain(s string) (string, bool) {
	if strings.IndexByte(s, '$') >= 0 || strings.IndexByte(s, 0) >= 0 {
		return "", false
	}
	if strings.HasPrefix(s, "/") {
		return path.Clean(s), true
	}
	rest, ok := strings.CutPrefix(s, "~/")
	if !ok || !path.IsAbs(v.Home) || strings.IndexByte(v.Home, 0) >= 0 {
		return "", false
	}
	home := v.quoted(v.Home)
	if isClean(home[1:]) && isClean(rest) {
		return home + "/" + rest, true
	}
	return path.Join(home, rest), true
}

// quoted returns a value as it is inserted: quoted if the text is a pattern.
func (v Vars) quoted(value string) string {
	if v.Pattern {
		return Quote(value)
	}
	return value
}

// InHome returns the rest of a form "~/rest" if its expansion is just the home folder followed
// by "/rest", without variables and already clean. The home folder must be clean and not the
// root.
func InHome(s string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(s, "~/")
	return rest, ok && isClean(rest) && strings.IndexByte(rest, '$') < 0 && strings.IndexByte(rest, 0) < 0
}

// isClean reports whether path.Clean would not change a relative path. It may return false for
// a clean path with a name that ends with a dot.
func isClean(p string) bool {
	last := byte('/')
	for i := range len(p) {
		c := p[i]
		if c == '/' && (last == '/' || last == '.') {
			return false
		}
		last = c
	}
	return last != '/' && last != '.'
}
