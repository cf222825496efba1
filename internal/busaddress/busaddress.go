// Package busaddress reads addresses of D-Bus buses, as in DBUS_SESSION_BUS_ADDRESS.
package busaddress

import (
	"fmt"
	"net/url"
	"strings"
)

// An Address is one address in a list.
type Address struct {
	Path     string // of a socket, or empty
	Abstract string // the name of an abstract socket, or empty
	Refused  string // why it is not used, or empty
}

// String returns the address in the D-Bus format.
func (a Address) String() string {
	if a.Abstract != "" {
		return "unix:abstract=" + Escape(a.Abstract)
	}
	return "unix:path=" + Escape(a.Path)
}

// Parse parses a list of addresses, as in DBUS_SESSION_BUS_ADDRESS. Only unix
// sockets are used: other addresses start a program ("unixexec:", "autolaunch:") or use the
// network ("tcp:"), where the bus cannot identify the client.
func Parse(list, runtimeDir string) []Address {
	var out []Address
	for entry := range strings.SplitSeq(list, ";") {
		if entry != "" {
			out = append(out, parse(entry, runtimeDir))
		}
	}
	return out
}

func parse(entry, runtimeDir string) Address {
	transport, rest, ok := strings.Cut(entry, ":")
	if !ok {
		return Address{Refused: fmt.Sprintf("%q has no transport", entry)}
	}
	if transport != "unix" {
		return Address{Refused: "the transport " + transport + " is not used"}
	}
	keys, err := keysOf(rest)
	if err != "" {
		return Address{Refused: err}
	}
	switch {
	case keys["path"] != "":
		return Address{Path: keys["path"]}
	case keys["abstract"] != "":
		return Address{Abstract: keys["abstract"]}
	case keys["runtime"] == "yes" && runtimeDir != "":
		return Address{Path: runtimeDir + "/bus"}
	case keys["runtime"] == "yes":
		return Address{Refused: "XDG_RUNTIME_DIR is not set"}
	case keys["dir"] != "" || keys["tmpdir"] != "":
		return Address{Refused: "a folder is for the bus to listen in, not to connect to"}
	}
	return Address{Refused: "it names no socket"}
}

// keysOf parses "key=value,key=value". An address with a duplicate key cannot be used.
func keysOf(s string) (keys map[string]string, wrong string) {
	keys = map[string]string{}
	if s == "" {
		return keys, ""
	}
	for pair := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := keys[key]; !ok || key == "" || twice {
			return nil, fmt.Sprintf("%q cannot be read", pair)
		}
		plain, err := url.PathUnescape(value)
		if err != nil || strings.IndexByte(plain, 0) >= 0 {
			return nil, fmt.Sprintf("%q cannot be read", pair)
		}
		keys[key] = plain
	}
	return keys, ""
}

// Escape escapes every byte that must not occur literally in an address.
func Escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_/.", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
