package seatbelt

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A filter says whether a rule is about a request.
type filter func(request) bool

func parseFilter(n node, params map[string]string) (filter, error) {
	if len(n.list) == 0 {
		return nil, fmt.Errorf("an empty filter")
	}
	switch name, args := n.list[0].symbol, n.list[1:]; name {
	case "require-all", "require-any", "require-not":
		return combined(name, args, params)
	case "local", "remote":
		return addressFilter(name, args, params)
	case "target", "vnode-type":
		return wordFilter(name, args)
	default:
		return textFilter(name, args, params)
	}
}

func combined(name string, args []node, params map[string]string) (filter, error) {
	var parts []filter
	for _, a := range args {
		f, err := parseFilter(a, params)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f)
	}
	switch {
	case len(parts) == 0 || name == "require-not" && len(parts) != 1:
		return nil, fmt.Errorf("%s with %d filters", name, len(parts))
	case name == "require-not":
		return func(r request) bool { return !parts[0](r) }, nil
	case name == "require-all":
		return func(r request) bool { return count(parts, r) == len(parts) }, nil
	}
	return func(r request) bool { return count(parts, r) > 0 }, nil
}

func count(parts []filter, r request) (n int) {
	for _, f := range parts {
		if f(r) {
			n++
		}
	}
	return n
}

// wordFilter reads a filter with a bare word.
func wordFilter(name string, args []node) (filter, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("%s with %d words", name, len(args))
	}
	switch word := args[0].symbol; {
	case name == "target" && word == "same-sandbox":
		return func(r request) bool { return r.SameSandbox }, nil
	case name == "vnode-type" && word == "DIRECTORY":
		return func(r request) bool { return r.Folder }, nil
	default:
		return nil, fmt.Errorf("%s %q", name, word)
	}
}

// value is a string, or a parameter.
func value(args []node, params map[string]string) (string, error) {
	switch {
	case len(args) != 1:
		return "", fmt.Errorf("%d values instead of one", len(args))
	case args[0].isText:
		return args[0].text, nil
	case len(args[0].list) == 2 && args[0].list[0].symbol == "param":
		v, ok := params[args[0].list[1].text]
		if !ok {
			return "", fmt.Errorf("parameter %q is not given", args[0].list[1].text)
		}
		return v, nil
	}
	return "", fmt.Errorf("no string: %+v", args[0])
}

// textFilter reads a filter about a path or a name.
func textFilter(name string, args []node, params map[string]string) (filter, error) {
	v, err := value(args, params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch name {
	case "literal":
		return func(r request) bool { return r.Path == v }, nil
	case "subpath":
		return func(r request) bool { return within(v, r.Path) }, nil
	case "regex":
		return regexFilter(v)
	case "extension":
		return func(r request) bool { return r.Extension == v }, nil
	case "sysctl-name", "global-name", "ipc-posix-name":
		return func(r request) bool { return r.Name == v }, nil
	case "sysctl-name-prefix":
		return func(r request) bool { return strings.HasPrefix(r.Name, v) }, nil
	}
	return nil, fmt.Errorf("no filter: %q", name)
}

// within is about paths that are there: a request that is about none has none.
func within(dir, p string) bool {
	return p == dir || dir == "/" && p != "" || strings.HasPrefix(p, dir+"/")
}

// plainSyntax is what an expression may be made of, so that macOS's matcher and
// Go's read it in the same way.
var plainSyntax = regexp.MustCompile(`^\^(\\[\\.+*?()\[\]{}^$|]|\[\^?[^\]\[\\]+\]|\|\)|[^\\.\[\]{}])*$`)

func regexFilter(expression string) (filter, error) {
	if !plainSyntax.MatchString(expression) || strings.Contains(expression, "(?") {
		return nil, fmt.Errorf("an expression that not every matcher reads alike: %s", expression)
	}
	e, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return func(r request) bool { return r.Path != "" && e.MatchString(r.Path) }, nil
}

// addressFilter reads (local ip "localhost:*") and (remote unix-socket (literal …)).
func addressFilter(side string, args []node, params map[string]string) (filter, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, fmt.Errorf("%s with %d words", side, len(args))
	}
	end := func(r request) *address {
		if side == "local" {
			return r.Local
		}
		return r.Remote
	}
	kind := args[0].symbol
	if kind == "unix-socket" {
		return socketFilter(end, args[1:], params)
	}
	if kind != "ip" && kind != "tcp" && kind != "udp" {
		return nil, fmt.Errorf("%s %q", side, kind)
	}
	matches, err := hostPort(args[1:])
	if err != nil {
		return nil, err
	}
	return func(r request) bool {
		a := end(r)
		return a != nil && a.Protocol != "unix" && (kind == "ip" || kind == a.Protocol) && matches(a)
	}, nil
}

func socketFilter(end func(request) *address, args []node, params map[string]string) (filter, error) {
	if len(args) != 1 || len(args[0].list) != 2 {
		return nil, fmt.Errorf("a unix socket without a path")
	}
	name := strings.TrimPrefix(args[0].list[0].symbol, "path-")
	if name != "literal" && name != "subpath" {
		return nil, fmt.Errorf("a unix socket by %q", name)
	}
	inner, err := textFilter(name, args[0].list[1:], params)
	if err != nil {
		return nil, err
	}
	return func(r request) bool {
		a := end(r)
		return a != nil && a.Protocol == "unix" && inner(request{Path: a.Path})
	}, nil
}

// hostPort reads "localhost:80": macOS takes no other host than that and "*".
func hostPort(args []node) (func(*address) bool, error) {
	if len(args) == 0 {
		return func(*address) bool { return true }, nil
	}
	host, port, ok := strings.Cut(args[0].text, ":")
	number, err := strconv.Atoi(port)
	if !args[0].isText || !ok || host != "localhost" && host != "*" || port != "*" && err != nil {
		return nil, fmt.Errorf("no address: %q", args[0].text)
	}
	return func(a *address) bool {
		return (host == "*" || a.Host == host) && (port == "*" || a.Port == number)
	}, nil
}
