package judge

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/show"
)

// Server says whether the name that a client gives to the server, in TLS or in
// the Host of a request, is allowed on a connection that Connect allowed. An empty
// name says nothing new. Otherwise a client could open a connection to a host
// that shares its address with others, and ask for one of those.
func (j *Network) Server(d Dest, name string) NetDecision {
	v := j.Connect(d)
	if !v.Allowed || name == "" || v.Rule == RuleNetworkMode {
		return v
	}
	if addr, ok := literal(name); ok {
		return j.serverByAddress(d, addr, v)
	}
	normal, ok := NormalName(name)
	if !ok {
		return j.refused("the client asks the server for what is no name of a host")
	}
	if r := j.deniedName(d, normal); r != nil {
		return r.decision(RuleNetworkDeny)
	}
	if v.ByAddress {
		v.HTTP = v.HTTP || j.deniesRequests(d, func(r *netRule) bool { return r.https && r.names(normal) })
		v.Inspect = v.Inspect || d.Protocol == "tcp" && j.inspectsName(normal, d.Port)
		return v
	}
	named := j.connectByName(d, normal)
	if !named.Allowed {
		named.Reason = "the connection is to " + show.Visible(orAddr(v.Name, d.Addr)) + ", and asks there for " + normal + ", which no entry of the list allows"
	}
	return named
}

// literal reads an address as it stands in a Host or behind SOCKS.
func literal(host string) (netip.Addr, bool) {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	addr, err := netip.ParseAddr(host)
	return plainAddr(addr), err == nil
}

// serverByAddress judges a client that names the server by an address.
func (j *Network) serverByAddress(d Dest, addr netip.Addr, v NetDecision) NetDecision {
	if v.ByAddress {
		for i := range j.deny {
			if r := &j.deny[i]; !r.single() && r.about(d.Protocol, d.Port) && r.holdsAny(addr) {
				return r.decision(RuleNetworkDeny)
			}
		}
		return v
	}
	if d.Addr.IsValid() && addr != plainAddr(d.Addr) {
		return j.refused("the connection is to " + d.Addr.String() + ", and asks there for " + addr.String())
	}
	d.Names, d.Addr = nil, addr
	return j.Connect(d)
}

func orAddr(name string, addr netip.Addr) string {
	if name == "" {
		return addr.String()
	}
	return name
}

// Request says whether one request of plain HTTP is allowed: to the host that it
// names, with that method and path. The path is as it stands in the request line,
// encoded and with its query. Where rules have paths, a path that servers read
// in several ways is refused.
func (j *Network) Request(d Dest, method, host, path string) NetDecision {
	return j.request(d, method, host, path, false)
}

// RequestTLS is Request for a request inside TLS that cloche looks into.
func (j *Network) RequestTLS(d Dest, method, host, path string) NetDecision {
	return j.request(d, method, host, path, true)
}

func (j *Network) request(d Dest, method, host, path string, tls bool) NetDecision {
	host = withoutPort(host)
	v := j.Server(d, host)
	if !v.Allowed || v.Rule == RuleNetworkMode || !v.HTTP {
		return v
	}
	if host == "" && !v.ByAddress {
		return j.refused("the request names no host")
	}
	return j.judgeRequest(d, host, request{method, readPath(path), tls}, v)
}

// withoutPort takes the port off a Host.
func withoutPort(host string) string {
	at := strings.LastIndexByte(host, ':')
	if at < 0 || strings.IndexByte(host, ':') != at && !strings.HasSuffix(host[:at], "]") {
		return host
	}
	return host[:at]
}

type request struct {
	method string
	path   urlPath
	tls    bool
}

// judges reports whether the rule is about a request as it travels: those about plain HTTP
// say nothing about what is inside TLS, and the other way round.
func (r *netRule) judges(q request) bool { return !r.single() || r.https == q.tls }

func (j *Network) judgeRequest(d Dest, host string, q request, v NetDecision) NetDecision {
	d.Addr = plainAddr(d.Addr)
	normal, _ := NormalName(host)
	named := func(r *netRule) bool { return r.every || normal != "" && r.names(normal) }
	for i := range j.deny {
		r := &j.deny[i]
		if r.about(d.Protocol, d.Port) && r.judges(q) && (named(r) || r.holdsAny(d.Addr)) && r.deniesRequest(q) {
			return r.decision(RuleNetworkDeny)
		}
	}
	reason := noRule
	for i := range j.allow {
		r := &j.allow[i]
		if !r.about(d.Protocol, d.Port) || !r.holds(d.Addr) && !(named(r) && r.leads(d)) {
			continue
		}
		if !r.judges(q) {
			reason = r.text + " is about requests inside TLS, and this one is plain HTTP"
			if q.tls {
				reason = r.text + " is about plain HTTP, and this request is inside TLS"
			}
			continue
		}
		if r.allowsRequest(q) {
			allowed := r.decision(RuleNetworkAllow)
			allowed.HTTP, allowed.Inspect, allowed.ByAddress, allowed.Name = true, v.Inspect, v.ByAddress, v.Name
			return allowed
		}
		reason = r.text + " does not allow " + show.Visible(q.method+" "+q.path.raw)
		if q.path.bad != "" {
			reason = "the path " + show.Visible(q.path.raw) + " " + q.path.bad
		}
	}
	return j.refused(reason)
}

// allowsRequest wants the path to match however a server reads it.
func (r *netRule) allowsRequest(q request) bool {
	if !r.single() {
		return true
	}
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, q.method) {
		return false
	}
	if len(r.Paths) == 0 {
		return true
	}
	return q.path.bad == "" && matchPaths(r.Paths, q.path.full) && matchPaths(r.Paths, q.path.bare)
}

// deniesRequest wants the path to match in one way of reading it. One that cannot
// be read could be any.
func (r *netRule) deniesRequest(q request) bool {
	if len(r.Methods) > 0 && !slices.ContainsFunc(r.Methods, func(m string) bool { return strings.EqualFold(m, q.method) }) {
		return false
	}
	if len(r.Paths) == 0 || q.path.bad != "" {
		return true
	}
	for _, p := range r.Paths {
		for _, reading := range []string{q.path.full, q.path.bare} {
			p, reading = strings.ToLower(p), strings.ToLower(reading)
			if matchPath(p, reading) || matchPath(p, strings.TrimSuffix(reading, "/")) {
				return true
			}
		}
	}
	return false
}

func matchPaths(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchPath(p, path) })
}

// A urlPath is the path of a request in the ways in which servers read it.
type urlPath struct {
	raw string
	// full is decoded; bare lacks the parameters behind semicolons, too.
	full, bare string
	// bad says why it can be read in still other ways.
	bad string
}

// readPath decodes a path. What servers are known to read differently makes it
// bad: dots and empty parts, which some remove, slashes that are encoded or
// turned, NUL and other controls, what is encoded twice, or is not UTF-8.
func readPath(raw string) urlPath {
	p := urlPath{raw: raw}
	path, _, _ := strings.Cut(raw, "?")
	if path == "*" {
		path = "/*"
	}
	if p.full, p.bad = decodePath(path); p.bad != "" {
		return p
	}
	if !strings.HasPrefix(p.full, "/") {
		p.bad = "does not start with a slash"
		return p
	}
	parts := strings.Split(p.full[1:], "/")
	for i, part := range parts {
		bare, _, _ := strings.Cut(part, ";")
		if bare == "." || bare == ".." || bare == "" && (i < len(parts)-1 || part != "") {
			p.bad = "holds a part that servers remove or read differently"
			return p
		}
		parts[i] = bare
	}
	p.bare = "/" + strings.Join(parts, "/")
	return p
}

func decodePath(path string) (decoded, bad string) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			var ok bool
			if c, ok = unescape(path[i:]); !ok {
				return "", "holds a % that encodes nothing"
			}
			i += 2
			if c == '/' || c == '?' || c == '#' {
				return "", "holds a separator that is encoded"
			}
		}
		if c <= ' ' && (c != ' ' || path[i] == ' ') || c == 0x7f || c == '\\' || c == '#' {
			return "", "holds a character that servers read differently"
		}
		b.WriteByte(c)
	}
	decoded = b.String()
	switch {
	case !utf8.ValidString(decoded):
		return "", "is not UTF-8"
	case escaped(decoded):
		return "", "is encoded twice"
	}
	return decoded, ""
}

// escaped reports whether a decoded text could be decoded once more.
func escaped(s string) bool {
	for i := range len(s) {
		if _, ok := unescape(s[i:]); ok {
			return true
		}
	}
	return false
}

// unescape returns the byte that a text beginning with "%41" encodes.
func unescape(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(n), err == nil
}

// matchPath matches a decoded path with a pattern, part by part: "**" is any
// number of parts, none included, so that "/v1/**" also matches "/v1" itself.
func matchPath(pattern, path string) bool {
	return matchParts(strings.Split(pattern, "/"), strings.Split(path, "/"))
}

// matchParts goes back only to the last "**", which is enough: what an earlier
// one could take, the last one can.
func matchParts(pattern, parts []string) bool {
	i, j, back, mark := 0, 0, -1, 0
	for j < len(parts) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			back, mark = i, j
			i++
		case i < len(pattern) && matchPart(pattern[i], parts[j]):
			i++
			j++
		case back >= 0:
			mark++
			i, j = back+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

// matchPart matches one part, in which "*" is any text.
func matchPart(pattern, part string) bool {
	i, j, back, mark := 0, 0, -1, 0
	for j < len(part) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			back, mark = i, j
			i++
		case i < len(pattern) && pattern[i] == part[j]:
			i++
			j++
		case back >= 0:
			mark++
			i, j = back+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
