package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

const hostForms = "write host, *.host, host:port, 192.0.2.0/24 or [2001:db8::1]:443"

// ParseHost reads "host", "*.host", "host:port", "192.0.2.1", "192.0.2.0/24",
// "2001:db8::1", "[2001:db8::1]:443" or "[2001:db8::/32]:443". Names are
// lowered and lose a trailing dot. Odd spellings of addresses ("127.1",
// "0x7f000001") are refused: programs read them differently from a name rule,
// so they could slip past one.
func ParseHost(s string) (HostEntry, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return HostEntry{}, err
	}
	host, err = normalHost(s, host)
	return HostEntry{Host: host, Port: port}, err
}

// String returns the form that [ParseHost] reads.
func (e HostEntry) String() string {
	if e.Port == 0 {
		return e.Host
	}
	if strings.Contains(e.Host, ":") {
		return "[" + e.Host + "]:" + strconv.Itoa(e.Port)
	}
	return e.Host + ":" + strconv.Itoa(e.Port)
}

func splitPort(s string) (host string, port int, err error) {
	if strings.Contains(s, "://") {
		return "", 0, faultf("write the host alone, for example example.com:443", "%q is a URL, not a host", s)
	}
	var text string
	if inner, ok := strings.CutPrefix(s, "["); ok {
		at := strings.LastIndexByte(inner, ']')
		if at < 0 {
			return "", 0, faultf(hostForms, "%q has no closing bracket", s)
		}
		host, text = inner[:at], inner[at+1:]
		if text == "" {
			return host, 0, nil
		}
		if text[0] != ':' || !strings.Contains(host, ":") {
			return "", 0, faultf(hostForms, "%q is not a host", s)
		}
		text = text[1:]
	} else if strings.Count(s, ":") == 1 {
		host, text, _ = strings.Cut(s, ":")
	} else {
		return s, 0, nil
	}
	n, ok := parseDigits(text)
	if !ok || n < 1 || n > 65535 {
		return "", 0, faultf("write a port from 1 to 65535, or none for every port", "%q has a bad port", s)
	}
	return host, int(n), nil
}

func normalHost(s, host string) (string, error) {
	if prefix, err := netip.ParsePrefix(host); err == nil {
		if prefix != prefix.Masked() {
			return "", faultf("write "+prefix.Masked().String(), "%q has bits set behind its prefix", s)
		}
		return prefix.String(), nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", faultf("leave the zone out", "%q names a zone", s)
		}
		return addr.Unmap().String(), nil
	}
	return normalName(s, host)
}

func normalName(s, host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(strings.TrimPrefix(name, "*."), ".")
	switch last := labels[len(labels)-1]; {
	case name == "":
		return "", faultf(hostForms, "the host is empty")
	case name == "*":
		return "", faultf("write network mode host, or 0.0.0.0/0 and ::/0", "%q is every host", s)
	case len(name) > 253:
		return "", faultf(hostForms, "the host is longer than 253 bytes")
	case looksNumeric(last):
		return "", faultf("write the whole address, for example 127.0.0.1", "%q is neither a name nor an address", s)
	}
	for _, l := range labels {
		if err := checkLabel(s, l); err != nil {
			return "", err
		}
	}
	return name, nil
}

// looksNumeric reports whether a name's last label would make resolvers read
// the name as an IPv4 address.
func looksNumeric(label string) bool {
	if _, ok := parseDigits(label); ok {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

func checkLabel(s, label string) error {
	if label == "" || len(label) > 63 {
		return faultf(hostForms, "%q is not a host", s)
	}
	for _, c := range []byte(label) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '*':
			return faultf("a wildcard stands only at the front, as in *.example.com", "%q has a wildcard inside", s)
		case c >= 0x80:
			return faultf("write the name in its xn-- form", "%q is not in ASCII", s)
		default:
			return faultf(hostForms, "%q is not a host", s)
		}
	}
	return nil
}
