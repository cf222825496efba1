package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// wanted returns, for each Go type, a description of what a policy file has to contain.
var wanted = sync.OnceValue(func() map[reflect.Type]string {
	return map[reflect.Type]string{
		reflect.TypeFor[[]PathRule]():      "a list of paths",
		reflect.TypeFor[[]Exemption]():     "a list of folders",
		reflect.TypeFor[[]Bind]():          "a list of binds",
		reflect.TypeFor[[]Socket]():        "a list of sockets",
		reflect.TypeFor[[]hostEntry]():     "a list of hosts",
		reflect.TypeFor[[]Secret]():        "a list of secrets",
		reflect.TypeFor[[]SecretFile]():    "a list of files",
		reflect.TypeFor[Secret]():          "NAME@HOST, a preset or {name: …, hosts: […], from: […], in: […]}",
		reflect.TypeFor[[]publishedPort](): "a list of ports",
		reflect.TypeFor[[]forwardedPort](): "a list of ports",
		reflect.TypeFor[publishedPort]():   "a port such as 8080, or 8080:80",
		reflect.TypeFor[forwardedPort]():   "a port such as 8080, or 8080:80",
		reflect.TypeFor[portRange]():       "a port such as 443, or a range such as 8000-8010",
		reflect.TypeFor[[]testEntry]():     "a list of tests",
		reflect.TypeFor[[]string]():        "a list of texts",
		reflect.TypeFor[PathRule]():        "a path or {path: …, optional: …, reason: …}",
		reflect.TypeFor[Exemption]():       "a folder or {path: …, reason: …}",
		reflect.TypeFor[Socket]():          "a path or {path: …, optional: …, reason: …}",
		reflect.TypeFor[Bind]():            "a bind such as src:dst:ro or {source: …, target: …}",
		reflect.TypeFor[hostEntry]():       "a host such as example.com:443 or {host: …, port: …, protocol: …, methods: …, paths: …}",
		reflect.TypeFor[networkSection]():  "a mode, true, false or {mode: …, allow: …, deny: …, publish: …, forward: …}",
		reflect.TypeFor[busSection]():      "true, false or {talk: […], see: …, own: …, call: …, broadcast: …}",
		reflect.TypeFor[reviewName]():      "true, false or the name of a review",
		reflect.TypeFor[backendSection]():  "a name or {name: …, fallback: …}",
		reflect.TypeFor[size]():            "a size such as 4GiB",
		reflect.TypeFor[duration]():        "a time such as 10m",
		reflect.TypeFor[count]():           "a number",
		reflect.TypeFor[bool]():            "true or false",
		reflect.TypeFor[int]():             "a number",
		reflect.TypeFor[string]():          "a text",
		reflect.TypeFor[capabilitiesNet](): `true, false or {"hosts": […]}`,
		reflect.TypeFor[capabilitiesEnv](): `"scrubbed", "inherit" or {"vars": […]}`,
	}
})

func wrongType(n *yaml.Node, t reflect.Type) error {
	want, ok := wanted()[t]
	switch {
	case ok:
	case isText(t):
		want = "a name"
	default:
		want = "a mapping"
	}
	return faultf(fixType(n, t), "must be %s, not %s", want, nodeName(n))
}

// fixType suggests what to write, for the most frequent mistakes.
func fixType(n *yaml.Node, t reflect.Type) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return ""
	case t.Kind() == reflect.Slice && n.ShortTag() == "!!str":
		return fmt.Sprintf("write [%s]", strconv.Quote(n.Value))
	case t.Kind() == reflect.String:
		return fmt.Sprintf("write it in quotes, %s", strconv.Quote(n.Value))
	}
	return ""
}

// nodeName returns a description of a node.
func nodeName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
	default:
		return "nothing"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	default:
		return "a text"
	}
}

// meant returns the key that people mean by a word whose spelling is quite different, or an empty
// string.
func meant(word string) string {
	switch word {
	case "expect", "expected", "result":
		return "want"
	case "readonly", "ro":
		return "read"
	case "rw":
		return "write"
	case "deny", "mask":
		return "hide"
	}
	return ""
}

// unknownKey returns an error that suggests the intended key: the closest one of the same
// mapping, else the same key in another section, else all known keys.
func unknownKey(key string, t reflect.Type) error {
	if key == "<<" {
		return faultf("write the keys out", "merge keys are not supported")
	}
	known := keysOf(t)
	if other := meant(key); slices.Contains(known, other) {
		return faultf(fmt.Sprintf("did you mean %q?", other), "unknown key")
	}
	if near := nearest(key, known); near != "" {
		return faultf(fmt.Sprintf("did you mean %q?", near), "unknown key")
	}
	if elsewhere := keyPath(reflect.TypeFor[document](), "", key); elsewhere != "" && t != reflect.TypeFor[capabilities]() {
		return faultf(fmt.Sprintf("did you mean %q?", elsewhere), "unknown key")
	}
	return faultf("known here: "+strings.Join(known, ", "), "unknown key")
}

// keysOf returns the keys of a struct in a stable order.
func keysOf(t reflect.Type) []string {
	var keys []string
	for k := range fieldsOf(t) {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// keyPath finds a key in the sections of a document, and returns its path.
func keyPath(t reflect.Type, at, key string) string {
	for i := range t.NumField() {
		f := t.Field(i)
		name := keyOf(f)
		if name == "" {
			continue
		}
		if name == key {
			return joinField(at, name)
		}
		if section := f.Type; section.Kind() == reflect.Pointer && section.Elem().Kind() == reflect.Struct {
			if found := keyPath(section.Elem(), joinField(at, name), key); found != "" {
				return found
			}
		}
	}
	return ""
}
