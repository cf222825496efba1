package resolve

import (
	"fmt"
	"net/url"
	"strings"
)

// A busAddress is one address in a list of bus addresses.
type busAddress struct {
	path     string // of a socket, or empty
	abstract string // the name of an abstract socket, or empty
	refused  string // why it is not used, or empty
}

// String returns the address in the D-Bus format.
func (a busAddress) String() string {
	if a.abstract != "" {
		return "unix:abstract=" + escapeAddress(a.abstract)
	}
	return "unix:path=" + escapeAddress(a.path)
}

// parseBusAddresses parses a list of addresses, as in DBUS_SESSION_BUS_ADDRESS. Only unix
// sockets are used: other addresses start a program ("unixexec:", "autolaunch:") or use the
// network ("tcp:"), where the bus cannot identify the client.
func parseBusAddresses(list, runtimeDir string) []busAddress {
	var out []busAddress
	for entry := range strings.SplitSeq(list, ";") {
		if entry != "" {
			out = append(out, parseBusAddress(entry, runtimeDir))
		}
	}
	return out
}

func parseBusAddress(entry, runtimeDir string) busAddress {
	transport, rest, ok := strings.Cut(entry, ":")
	if !ok {
		return busAddress{refused: fmt.Sprintf("%q has no transport", entry)}
	}
	if transport != "unix" {
		return busAddress{refused: "the transport " + transport + " is not used"}
	}
	keys, err := addressKeys(rest)
	if err != "" {
		return busAddress{refused: err}
	}
	switch {
	case keys["path"] != "":
		return busAddress{path: keys["path"]}
	case keys["abstract"] != "":
		return busAddress{abstract: keys["abstract"]}
	case keys["runtime"] == "yes" && runtimeDir != "":
		return busAddress{path: runtimeDir + "/bus"}
	case keys["runtime"] == "yes":
		return busAddress{refused: "XDG_RUNTIME_DIR is not set"}
	case keys["dir"] != "" || keys["tmpdir"] != "":
		return busAddress{refused: "a folder is for the bus to listen in, not to connect to"}
	}
	return busAddress{refused: "it names no socket"}
}

// addressKeys parses "key=value,key=value". An address with a duplicate key cannot be used.
func addressKeys(s string) (keys map[string]string, wrong string) {
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

// escapeAddress escapes every byte that must not occur literally in an address.
func escapeAddress(s string) string {
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
