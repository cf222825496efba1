package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const hostForms = "write host, *.host, *, host:port, host:8000-8010, 192.0.2.0/24 or [2001:db8::1]:443, with udp://, http:// or private:// before it if need be"

// A HostEntry is one rule for hosts, as [HostRule] explains it. In a file it is
// a mapping, or one string that [ParseHost] reads.
type HostEntry struct {
	Host     string    `json:"host" jsonschema:"A name, *.name, * for every public host, an address or a CIDR."`
	Port     PortRange `json:"port,omitzero" jsonschema:"A port, or a range such as 8000-8010. Default: every port, or 80 with methods or paths."`
	Protocol Protocol  `json:"protocol,omitempty" jsonschema:"tcp, udp or icmp. Default: all."`
	Methods  []string  `json:"methods,omitempty" jsonschema:"The methods of plain HTTP that the rule applies to. Default: all."`
	Private  bool      `json:"private,omitempty" jsonschema:"The name may resolve to private addresses, as hosts inside a company do. Only with a name."`
	Paths    []string  `json:"paths,omitempty" jsonschema:"The paths of plain HTTP that the rule applies to: * matches one part between slashes, ** any number of parts."`
	Reason   string    `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
}

func (e *HostEntry) fromScalar(_, value string) (err error) {
	*e, err = ParseHost(value)
	return err
}

// privateScheme stands before a host that may be a private one.
const privateScheme = "private://"

// ParseHost reads "host", "*.host", "*", "host:443", "host:8000-8010",
// "192.0.2.1", "192.0.2.0/24", "2001:db8::1", "[2001:db8::1]:443" or
// "[2001:db8::/32]:443", each with an optional "tcp://", "udp://" or "icmp://"
// before it, or "http://host[:80][/path]" for plain HTTP. "private://" before all of
// it lets a name lead to private addresses. Names are
// lowered and lose a trailing dot. Odd spellings of addresses ("127.1",
// "0x7f000001") are refused: programs read them differently from a name rule,
// so they could slip past one.
func ParseHost(s string) (HostEntry, error) {
	plain, private := strings.CutPrefix(s, privateScheme)
	e, rest, err := splitScheme(plain)
	if err != nil {
		return HostEntry{}, err
	}
	e.Private = private
	if e.Host, e.Port, err = splitPort(s, rest); err != nil {
		return HostEntry{}, err
	}
	if err := e.settle(s); err != nil {
		return HostEntry{}, err
	}
	return e, nil
}

// splitScheme takes the scheme off, and the path that only plain HTTP has.
func splitScheme(s string) (e HostEntry, rest string, err error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return e, s, nil
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "http":
		rest, path, found := strings.Cut(rest, "/")
		e.Paths = []string{"/**"}
		if found {
			e.Paths[0] = "/" + path
		}
		return e, rest, nil
	case "https":
		host, _, _ := strings.Cut(rest, "/")
		if !strings.Contains(host, ":") {
			host += ":443"
		}
		return e, "", faultf("write "+host, "%q is a URL, and what is inside of TLS cannot be judged", s)
	}
	if e.Protocol.UnmarshalText([]byte(scheme)) != nil {
		return e, "", faultf("write tcp://, udp://, icmp:// or http://, or the host alone", "%q has the unknown scheme %q", s, scheme)
	}
	return e, rest, nil
}

// settle checks an entry, brings it into its one spelling, and fills the port of
// plain HTTP in. The text is what to call it in errors.
func (e *HostEntry) settle(text string) (err error) {
	if e.Host, err = normalHost(text, e.Host); err != nil {
		return err
	}
	if e.Private && !isName(e.Host) {
		return faultf("name a host, or leave private out: a rule for an address opens it as it is", "%q is private and no name of a host", text)
	}
	if e.Protocol != ProtocolAny {
		if err := e.Protocol.UnmarshalText([]byte(e.Protocol)); err != nil {
			return err
		}
	}
	if !e.Port.IsZero() {
		if err := e.Port.UnmarshalText([]byte(e.Port.String())); err != nil {
			return err
		}
		if e.Protocol == ProtocolICMP {
			return faultf("leave the port out", "%q has a port, and icmp has none", text)
		}
	}
	if len(e.Methods) == 0 && len(e.Paths) == 0 {
		return nil
	}
	return e.settleHTTP(text)
}

// isName reports whether a normal host is a name, or all names below one.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && host != "*" && !strings.Contains(host, "/")
}

func (e *HostEntry) settleHTTP(text string) error {
	if e.Protocol == ProtocolUDP || e.Protocol == ProtocolICMP {
		return faultf("leave the protocol out, or the methods and paths", "%q is about %s, and only plain HTTP has methods and paths", text, e.Protocol)
	}
	e.Protocol = ProtocolTCP
	if e.Port.IsZero() {
		e.Port.First = 80
	}
	e.Methods, e.Paths = slices.Clone(e.Methods), slices.Clone(e.Paths)
	for i, m := range e.Methods {
		if m == "" || strings.Trim(strings.ToUpper(m), "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return faultf("write a method such as GET, or none for all of them", "%q is not a method of HTTP", m)
		}
		e.Methods[i] = strings.ToUpper(m)
	}
	for i, p := range e.Paths {
		settled, err := settleURLPath(p)
		if err != nil {
			return err
		}
		e.Paths[i] = settled
	}
	return nil
}

// String returns the form that [ParseHost] reads, after the methods if there are
// any, and with all paths if there are several.
func (e HostEntry) String() string {
	if e.Private {
		e.Private = false
		return privateScheme + e.String()
	}
	host, port := e.Host, e.Port.String()
	http := len(e.Methods) > 0 || len(e.Paths) > 0
	if strings.Contains(host, ":") && (port != "" || http) {
		host = "[" + host + "]"
	}
	if http && port == "80" {
		port = ""
	}
	if port != "" {
		host += ":" + port
	}
	switch {
	case http:
		return e.httpString(host)
	case e.Protocol != ProtocolAny:
		return string(e.Protocol) + "://" + host
	}
	return host
}

func (e HostEntry) httpString(host string) string {
	s := "http://" + host
	if !slices.Equal(e.Paths, []string{"/**"}) {
		s += strings.Join(e.Paths, ",")
	}
	if len(e.Methods) > 0 {
		s = strings.Join(e.Methods, ",") + " " + s
	}
	return s
}

// Entry returns the rule in the form of a file.
func (r HostRule) Entry() HostEntry {
	return HostEntry{Host: r.Host, Port: PortRange{r.Port, r.LastPort}, Protocol: r.Protocol, Private: r.Private, Methods: r.Methods, Paths: r.Paths, Reason: r.Reason}
}

// rule is the entry with its origin.
func (e HostEntry) rule(o Origin) HostRule {
	return HostRule{Host: e.Host, Port: e.Port.First, LastPort: e.Port.Last, Protocol: e.Protocol, Private: e.Private,
		Methods: slices.Clone(e.Methods), Paths: slices.Clone(e.Paths), Reason: e.Reason, Origin: o}
}

// splitPort takes "host:port" apart; s is the whole text.
func splitPort(s, rest string) (host string, port PortRange, err error) {
	var text string
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		at := strings.LastIndexByte(inner, ']')
		if at < 0 {
			return "", port, faultf(hostForms, "%q has no closing bracket", s)
		}
		host, text = inner[:at], inner[at+1:]
		if text == "" {
			return host, port, nil
		}
		if text[0] != ':' || !strings.Contains(host, ":") {
			return "", port, faultf(hostForms, "%q is not a host", s)
		}
		text = text[1:]
	} else if strings.Count(rest, ":") == 1 {
		host, text, _ = strings.Cut(rest, ":")
	} else {
		return rest, port, nil
	}
	if err := port.UnmarshalText([]byte(text)); err != nil {
		return "", port, faultf("write a port from 1 to 65535, a range such as 8000-8010, or none for every port", "%q has a bad port", s)
	}
	return host, port, nil
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
	text, length, _ := strings.Cut(host, "/")
	if addr, err := netip.ParseAddr(text); err == nil && length != "" && strings.Trim(length, "0123456789") == "" {
		bits := strconv.Itoa(addr.BitLen())
		return "", faultf("write a length from 0 to "+bits+", as in "+text+"/"+bits, "%q: %s is no prefix length", s, length)
	}
	return normalName(s, host)
}

func normalName(s, host string) (string, error) {
	if host == "*" {
		return host, nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(strings.TrimPrefix(name, "*."), ".")
	switch last := labels[len(labels)-1]; {
	case name == "":
		return "", faultf(hostForms, "the host is empty")
	case strings.Contains(name, "/"):
		bare, path, _ := strings.Cut(name, "/")
		return "", faultf("write "+bare+", or http://"+bare+"/"+path+" for plain HTTP", "%q has a path, and only those of plain HTTP can be judged", s)
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
