package policy

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const hostForms = "write host, *.host, *, host:port, host:8000-8010, 192.0.2.0/24 or [2001:db8::1]:443, with udp://, http://, https:// or private:// before it if need be"

// HTTPS is the protocol of a [HostRule] about requests inside TLS.
const HTTPS = "https"

// anyPath are the paths of a rule for every path.
var anyPath = []string{"/**"}

// A protocol is the name of a protocol in a policy file.
type protocol string

func (p *protocol) UnmarshalText(b []byte) error {
	name := strings.ToLower(string(b))
	if name != "tcp" && name != "udp" && name != "icmp" && name != HTTPS {
		return faultf("write tcp, udp, icmp or https, or leave it out for all of them", "%q is not a protocol", b)
	}
	*p = protocol(name)
	return nil
}

// A hostEntry is a [HostRule] in a policy file: a mapping, or a text that [ParseHost] reads.
type hostEntry struct {
	Host     string    `json:"host" jsonschema:"A name, *.name, * for every public host, an address or a CIDR."`
	Port     portRange `json:"port,omitzero" jsonschema:"A port, or a range such as 8000-8010. Default: every port, 80 with methods or paths, 443 with https or inspect."`
	Protocol protocol  `json:"protocol,omitempty" jsonschema:"tcp, udp, icmp, or https for requests inside TLS. Default: all."`
	Methods  []string  `json:"methods,omitempty" jsonschema:"The methods of HTTP that the rule applies to: of plain HTTP, unless the protocol is https. Default: all."`
	Inspect  *bool     `json:"inspect,omitempty" jsonschema:"True is the protocol https: cloche looks inside TLS, and records each request. False keeps TLS end-to-end where a wider rule or a secret asks for a look inside. Only under allow."`
	Private  bool      `json:"private,omitempty" jsonschema:"The name may resolve to private addresses, as hosts inside a company do. Only with a name."`
	Paths    []string  `json:"paths,omitempty" jsonschema:"The paths of HTTP that the rule applies to: * matches one part between slashes, ** any number of parts."`
	Reason   string    `json:"reason,omitempty" jsonschema:"Why, shown with the rule."`
}

func (e *hostEntry) fromScalar(_, value string) error {
	r, err := ParseHost(value)
	*e = r.entry()
	return err
}

func (e hostEntry) rule(o Origin) HostRule {
	return HostRule{Host: e.Host, Port: e.Port.First, LastPort: e.Port.Last, Protocol: string(e.Protocol), Private: e.Private,
		EndToEnd: e.Inspect != nil && !*e.Inspect, Methods: slices.Clone(e.Methods), Paths: slices.Clone(e.Paths), Reason: e.Reason, Origin: o}
}

func (r HostRule) entry() hostEntry {
	e := hostEntry{Host: r.Host, Port: r.ports(), Protocol: protocol(r.Protocol), Private: r.Private, Methods: r.Methods, Paths: r.Paths, Reason: r.Reason}
	if r.EndToEnd {
		e.Inspect = new(false)
	}
	return e
}

// inspected turns inspect: true into the protocol https, which means the same.
func (e *hostEntry) inspected() error {
	if e.Inspect == nil || !*e.Inspect {
		return nil
	}
	if e.Protocol == "udp" || e.Protocol == "icmp" {
		return faultf("leave the protocol out, or inspect", "%q is about %s, and only TLS over TCP can be inspected", e.Host, e.Protocol)
	}
	e.Protocol, e.Inspect = HTTPS, nil
	return nil
}

func (r HostRule) ports() portRange { return portRange{r.Port, r.LastPort} }

// MarshalJSON writes the rule in the form of a policy file: as a text if that is enough,
// otherwise as a mapping.
func (r HostRule) MarshalJSON() ([]byte, error) {
	e := r.entry()
	if short, err := ParseHost(r.String()); err == nil && reflect.DeepEqual(short.entry(), e) {
		return json.Marshal(r.String())
	}
	return json.Marshal(e)
}

// privateScheme is the prefix of a host that may have private addresses.
const privateScheme = "private://"

// ParseHost reads "host", "*.host", "*", "host:443", "host:8000-8010",
// "192.0.2.1", "192.0.2.0/24", "2001:db8::1", "[2001:db8::1]:443" or
// "[2001:db8::/32]:443", each with an optional "tcp://", "udp://" or "icmp://"
// before it, or "[METHODS ]http://host[:80][/path]" for plain HTTP and
// "[METHODS ]https://host[:443][/path]" for requests inside TLS, with the methods separated by
// commas. "private://" before all of it allows the name to resolve to private addresses. Names are converted to lower case
// and lose a trailing dot. Unusual spellings of addresses ("127.1", "0x7f000001") are
// errors: programs resolve them to an address, so they could bypass a rule about a name.
func ParseHost(s string) (HostRule, error) {
	plain, private := strings.CutPrefix(s, privateScheme)
	methods, url, hasMethods := strings.Cut(plain, " ")
	if hasMethods {
		plain = url
	}
	r, rest, err := splitScheme(plain)
	if err != nil {
		return HostRule{}, err
	}
	r.Private = private
	if hasMethods {
		if r.Paths == nil {
			return HostRule{}, faultf("write METHOD http://host/path or METHOD https://host/path", "%q has a method, and is no URL of HTTP", s)
		}
		r.Methods = strings.Split(methods, ",")
	}
	host, ports, err := splitPort(s, rest)
	if err != nil {
		return HostRule{}, err
	}
	r.Host, r.Port, r.LastPort = host, ports.First, ports.Last
	if err := r.normalize(s); err != nil {
		return HostRule{}, err
	}
	return r, nil
}

// splitScheme takes the scheme off, and the path that only HTTP has.
func splitScheme(s string) (r HostRule, rest string, err error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return r, s, nil
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "http", HTTPS:
		host, path, found := strings.Cut(rest, "/")
		r.Paths = []string{"/**"}
		if found {
			r.Paths[0] = "/" + path
		}
		if scheme == HTTPS {
			r.Protocol = HTTPS
		}
		return r, host, nil
	}
	if scheme != "tcp" && scheme != "udp" && scheme != "icmp" {
		return r, "", faultf("write tcp://, udp://, icmp://, http:// or https://, or the host alone", "%q has the unknown scheme %q", s, scheme)
	}
	r.Protocol = scheme
	return r, rest, nil
}

// normalize checks a rule, brings it into a unique spelling, and sets the default port of
// HTTP. Errors quote text for the rule.
func (r *HostRule) normalize(text string) (err error) {
	if r.Host, err = normalHost(text, r.Host); err != nil {
		return err
	}
	if r.Private && !isName(r.Host) {
		return faultf("name a host, or leave private out: a rule for an address opens it as it is", "%q is private and no name of a host", text)
	}
	if r.Protocol != "" {
		var p protocol
		if err := p.UnmarshalText([]byte(r.Protocol)); err != nil {
			return err
		}
		r.Protocol = string(p)
	}
	if ports := r.ports(); !ports.IsZero() {
		if err := ports.UnmarshalText([]byte(ports.String())); err != nil {
			return err
		}
		r.Port, r.LastPort = ports.First, ports.Last
		if r.Protocol == "icmp" {
			return faultf("leave the port out", "%q has a port, and icmp has none", text)
		}
	}
	if r.Protocol == HTTPS && len(r.Methods) == 0 && len(r.Paths) == 0 {
		r.Paths = slices.Clone(anyPath)
	}
	if len(r.Methods) == 0 && len(r.Paths) == 0 {
		return nil
	}
	return r.normalizeHTTP(text)
}

// isName reports whether a normalized host is a name or "*.name".
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && host != "*" && !strings.Contains(host, "/")
}

func (r *HostRule) normalizeHTTP(text string) error {
	if r.Protocol == "udp" || r.Protocol == "icmp" {
		return faultf("leave the protocol out, or the methods and paths", "%q is about %s, and only HTTP has methods and paths", text, r.Protocol)
	}
	if r.EndToEnd {
		return faultf("leave inspect out, or the methods and paths", "%q has methods or paths, which only a look inside can tell", text)
	}
	usual := 443
	if r.Protocol != HTTPS {
		r.Protocol, usual = "tcp", 80
	}
	if r.Port == 0 {
		r.Port = usual
	}
	r.Methods = slices.Clone(r.Methods)
	for i, m := range r.Methods {
		if m == "" || strings.Trim(strings.ToUpper(m), "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return faultf("write a method such as GET, or none for all of them", "%q is not a method of HTTP", m)
		}
		r.Methods[i] = strings.ToUpper(m)
	}
	for _, p := range r.Paths {
		if err := checkURLPath(p); err != nil {
			return err
		}
	}
	return nil
}

// String returns the form that [ParseHost] reads, preceded by the methods if there are any,
// and with all paths if there are several.
func (r HostRule) String() string {
	if r.Private {
		r.Private = false
		return privateScheme + r.String()
	}
	host, port := r.Host, r.ports().String()
	http := len(r.Methods) > 0 || len(r.Paths) > 0 || r.Protocol == HTTPS
	scheme, usual := "http://", "80"
	if r.Protocol == HTTPS {
		scheme, usual = "https://", "443"
	}
	if strings.Contains(host, ":") && (port != "" || http) {
		host = "[" + host + "]"
	}
	if http && port == usual {
		port = ""
	}
	if port != "" {
		host += ":" + port
	}
	if r.EndToEnd {
		host += " (inspect: false)"
	}
	switch {
	case !http && r.Protocol != "":
		return r.Protocol + "://" + host
	case !http:
		return host
	}
	s := scheme + host
	if !slices.Equal(r.Paths, anyPath) {
		s += strings.Join(r.Paths, ",")
	}
	if len(r.Methods) > 0 {
		s = strings.Join(r.Methods, ",") + " " + s
	}
	return s
}

// splitPort splits "host:port". s is the whole text, for errors.
func splitPort(s, rest string) (host string, port portRange, err error) {
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
		return "", faultf("write "+bare+", https://"+bare+"/"+path+", or http://"+bare+"/"+path+" for plain HTTP", "%q has a path, and only URLs of HTTP have one", s)
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

// looksNumeric reports whether resolvers would read a name with this last label as an IPv4
// address.
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

// checkURLPath checks a path of a rule for HTTP. Rules contain decoded paths in a unique
// spelling. A request's path is brought into the same form, or denied if servers could read it
// in several ways.
func checkURLPath(p string) error {
	const forms = "write a path such as /v1/*, or /v1/** with all below it"
	switch {
	case !strings.HasPrefix(p, "/"):
		return faultf(forms, "%q does not start with a slash", p)
	case strings.ContainsAny(p, "?#"):
		return faultf("leave out all from the ? or # on", "%q holds a query or a fragment, and only paths are judged", p)
	case strings.Contains(p, "%"):
		return faultf("write it decoded: requests are decoded before they are judged", "%q holds a %% escape", p)
	case strings.ContainsAny(p, "\\;") || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return faultf(forms, "%q holds a character that paths of rules cannot hold", p)
	}
	parts := strings.Split(p[1:], "/")
	for i, part := range parts {
		switch {
		case part == "." || part == ".." || part == "" && i < len(parts)-1:
			return faultf("write it without . and .. and double slashes", "%q is not in its shortest form", p)
		case part != "**" && strings.Contains(part, "**"):
			return faultf("write ** between two slashes, and * for a part of a name", "%q holds ** beside other characters", p)
		}
	}
	return nil
}
