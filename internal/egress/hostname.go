package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/plan"
)

// parseAddr reads an IP address as a URL or a proxy's client writes it. A zone
// is refused: it names an interface of the host.
func parseAddr(s string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		s = inner
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// splitHostPort takes "host", "host:port", "[v6]" and "[v6]:port" apart. A port
// that is not given is returned as 0.
func splitHostPort(s string) (host string, port int, ok bool) {
	host, rest := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, false
		}
		host, rest = s[:end+1], s[end+1:]
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 {
		host, rest = s[:colon], s[colon:]
	}
	if host == "" {
		return "", 0, false
	}
	if rest == "" {
		return host, 0, true
	}
	port, ok = parsePort(strings.TrimPrefix(rest, ":"))
	return host, port, ok && rest[0] == ':'
}

func parsePort(s string) (int, bool) {
	if s == "" || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	port, err := strconv.Atoi(s)
	return port, err == nil && port >= 1 && port <= 65535
}

// hostOf is the name or address that a client named, in its one form: in
// exactly one of the two results.
func hostOf(s string) (name string, addr netip.Addr, ok bool) {
	if addr, ok := parseAddr(s); ok {
		return "", addr, true
	}
	if name, ok = plan.NormalName(s); !ok {
		return "", netip.Addr{}, false
	}
	return name, netip.Addr{}, true
}
