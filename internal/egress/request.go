package egress

import (
	"bufio"
	"strings"
)

// A request is an HTTP/1 request whose meaning is sure.
type request struct {
	*head
	method  string
	target  string // as it was sent
	minor   int    // of HTTP/1.x
	scheme  string // of a target in absolute form, otherwise ""
	host    string // host[:port] of the target, or else of the Host field; may be ""
	path    string // path and query
	framing framing
}

// readRequest reads and checks the head of one request. The first line is checked
// before the next is read: what is no HTTP may have none.
func readRequest(r *bufio.Reader) (*request, error) {
	left := maxHead
	line, err := readLine(r, &left)
	if err != nil {
		return nil, err
	}
	q := &request{head: &head{line: line}}
	if err := q.parseLine(); err != nil {
		return nil, err
	}
	if q.fields, err = readFields(r, &left); err != nil {
		return nil, err
	}
	q.size = maxHead - left
	if err := q.checkNames(); err != nil {
		return nil, err
	}
	if err := q.readHost(); err != nil {
		return nil, err
	}
	return q, q.readFraming()
}

func (q *request) parseLine() error {
	parts := strings.Split(q.line, " ")
	if len(parts) != 3 || !isToken(parts[0]) || !isTarget(parts[1]) {
		return malformed("its first line is not \"METHOD target HTTP/1.1\"")
	}
	q.method, q.target = parts[0], parts[1]
	switch parts[2] {
	case "HTTP/1.1":
		q.minor = 1
	case "HTTP/1.0":
	default:
		return malformed("its version is not HTTP/1.1 or HTTP/1.0")
	}
	return nil
}

// isTarget reports whether every byte may stand in a target. Bytes from 0x80 on may not,
// but programs send them, and servers agree on them.
func isTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || c == '#' || c == '\\' || c == '"' || c == '<' || c == '>' {
			return false
		}
	}
	return s != ""
}

// readHost finds the host that is asked for. If both the target and the Host field
// name one, they have to be the same.
func (q *request) readHost() error {
	hosts := q.get("Host")
	if len(hosts) > 1 || len(hosts) == 0 && q.minor == 1 {
		return malformed("it has no Host field, or more than one")
	}
	named := ""
	if len(hosts) == 1 {
		named = hosts[0]
	}
	inTarget, err := q.splitTarget()
	if err != nil {
		return err
	}
	q.host = named
	if inTarget == "" {
		return checkHost(named)
	}
	if named != "" && !sameHost(named, inTarget) {
		return malformed("its Host field is not the host of its target")
	}
	q.host = inTarget
	return checkHost(inTarget)
}

// splitTarget sets scheme and path, and returns the host in the target.
func (q *request) splitTarget() (string, error) {
	switch {
	case q.method == "CONNECT":
		if _, port, ok := splitHostPort(q.target); !ok || port == 0 {
			return "", malformed("the target of CONNECT is not host:port")
		}
		return q.target, nil
	case strings.HasPrefix(q.target, "/"), q.target == "*":
		q.path = q.target
		return "", nil
	}
	scheme, rest, ok := strings.Cut(q.target, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	if !ok || host == "" || strings.Contains(host, "@") {
		return "", malformed("its target is neither a path nor a URL")
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	q.scheme, q.path = strings.ToLower(scheme), path
	return host, nil
}

// checkHost refuses a host that is neither a name nor an address.
func checkHost(s string) error {
	if s == "" {
		return nil
	}
	host, _, ok := splitHostPort(s)
	if ok {
		_, _, ok = hostOf(host)
	}
	if !ok {
		return malformed("its host is neither a name nor an address")
	}
	return nil
}

// sameHost compares two spellings of host[:port]. A port that only one of them
// gives is no contradiction.
func sameHost(a, b string) bool {
	hostA, portA, okA := splitHostPort(a)
	hostB, portB, okB := splitHostPort(b)
	if !okA || !okB || portA != portB && portA != 0 && portB != 0 {
		return false
	}
	nameA, addrA, okA := hostOf(hostA)
	nameB, addrB, okB := hostOf(hostB)
	return okA && okB && nameA == nameB && addrA == addrB
}

func (q *request) readFraming() error {
	f, err := q.bodyFraming()
	if err != nil {
		return err
	}
	if f.chunked && q.minor == 0 {
		return malformed("HTTP/1.0 has no Transfer-Encoding")
	}
	if f.length < 0 {
		f.length = 0 // a request without a length has no body
	}
	q.framing = f
	return nil
}

func (q *request) hasBody() bool { return q.framing.chunked || q.framing.length > 0 }

// upgrades reports whether the request asks to go on in another protocol, and
// may. HTTP/2 and TLS would hide the requests that follow.
func (q *request) upgrades() bool {
	offers := q.get("Upgrade")
	if len(offers) == 0 || !q.has("Connection", "Upgrade") || q.hasBody() {
		return false
	}
	for offer := range strings.SplitSeq(strings.Join(offers, ","), ",") {
		offer = strings.ToLower(strings.Trim(offer, " \t"))
		for _, hides := range []string{"h2", "http/", "tls"} {
			if strings.HasPrefix(offer, hides) {
				return false
			}
		}
	}
	return true
}

// keepsAlive reports whether another request may follow on the connection. After
// a body none may: see outgoing.
func (q *request) keepsAlive() bool {
	if q.hasBody() {
		return false
	}
	if q.minor == 0 {
		return q.has("Connection", "keep-alive")
	}
	return !q.has("Connection", "close")
}
