package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/show"
)

const (
	// maxHead bounds the first line and the header of a message together.
	maxHead = 64 << 10
	// maxResponseHead is the same for responses.
	maxResponseHead = 256 << 10
	// maxFields bounds the lines of a header.
	maxFields = 256
)

// A malformed error says why two servers could understand a request differently.
type malformed string

func (m malformed) Error() string { return "the HTTP request is malformed: " + string(m) }

func isMalformed(err error) bool {
	var m malformed
	return errors.As(err, &m)
}

const errHeadTooLarge = malformed("its header is larger than 64 KiB")

const errResponseHead = failure("the header of the response is larger than 256 KiB")

// A field is one line of a header.
type field struct{ name, value string }

// A head is the first line and the header of an HTTP/1 message.
type head struct {
	line   string
	fields []field
	size   int
	raw    []byte // of a response: the unchanged bytes
}

// readFields reads lines up to the empty one. Each has to end in CR LF, contain no other
// CR, LF or NUL, and be a field with only one meaning by RFC 9112: no space before the
// colon, no folded lines.
func readFields(r *bufio.Reader, left *int) ([]field, error) {
	var fields []field
	for {
		line, err := readLine(r, left)
		switch {
		case err != nil:
			return nil, noEOF(err)
		case line == "":
			return fields, nil
		case len(fields) == maxFields:
			return nil, malformed("its header has more than 256 lines")
		}
		f, ok := parseField(line)
		if !ok {
			return nil, malformed("a header line is not \"name: value\"")
		}
		fields = append(fields, f)
	}
}

// readLine reads one line without its end, and subtracts its size from left.
func readLine(r *bufio.Reader, left *int) (string, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", errHeadTooLarge
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if len(part)+len(long) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		long = append(long, part...)
		if err == nil {
			return cleanLine(long)
		}
	}
}

func cleanLine(line []byte) (string, error) {
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || strings.ContainsAny(text, "\r\n\x00") {
		return "", malformed("a line does not end in CR LF, or has a control character")
	}
	return text, nil
}

func parseField(line string) (field, bool) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return field{}, false
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return field{}, false
		}
	}
	return field{name, strings.Trim(value, " \t")}, true
}

// isToken reports whether s is a token of RFC 9110, 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// get returns the values of a field, in order.
func (h *head) get(name string) []string {
	var values []string
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// has reports whether a comma-separated field contains the word.
func (h *head) has(name, word string) bool {
	for _, value := range h.get(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// without returns the fields that have none of the names.
func (h *head) without(names ...string) []field {
	var kept []field
next:
	for _, f := range h.fields {
		for _, name := range names {
			if strings.EqualFold(f.name, name) {
				continue next
			}
		}
		kept = append(kept, f)
	}
	return kept
}

// bytes returns the head in the form in which it is sent.
func (h *head) bytes() []byte {
	if h.raw != nil {
		return h.raw
	}
	b := make([]byte, 0, h.size+16)
	b = append(append(b, h.line...), "\r\n"...)
	for _, f := range h.fields {
		b = append(append(b, f.name...), ": "...)
		b = append(append(b, f.value...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// A framing says where the body of a message ends.
type framing struct {
	chunked bool
	length  int64 // -1: where the connection ends
}

// bodyFraming reads Content-Length and Transfer-Encoding. It fails if both are present,
// if one is repeated, and for every coding except "chunked": each could smuggle a
// request.
func (h *head) bodyFraming() (framing, error) {
	lengths, codings := h.get("Content-Length"), h.get("Transfer-Encoding")
	switch {
	case len(lengths)+len(codings) > 1:
		return framing{}, malformed("Content-Length or Transfer-Encoding is given twice, or both are")
	case len(codings) == 1 && strings.EqualFold(codings[0], "chunked"):
		return framing{chunked: true}, nil
	case len(codings) == 1:
		return framing{}, malformed("its Transfer-Encoding is not \"chunked\"")
	case len(lengths) == 1:
		n, ok := parseLength(lengths[0])
		if !ok {
			return framing{}, malformed("its Content-Length is no number")
		}
		return framing{length: n}, nil
	}
	return framing{length: -1}, nil
}

func parseLength(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// readResponse reads the head of a response without checks, because the gate does not
// protect clients from servers. Data that does not begin like an HTTP/1 response gets
// an empty head, and a body that ends with the connection.
func readResponse(r *bufio.Reader) (*head, error) {
	h := &head{raw: []byte{}}
	if start, _ := r.Peek(5); string(start) != "HTTP/" {
		return h, nil
	}
	for {
		part, err := r.ReadSlice('\n')
		h.raw = append(h.raw, part...)
		if len(h.raw) > maxResponseHead {
			return nil, errResponseHead
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if endsInEmptyLine(h.raw) {
			break
		}
	}
	h.size = len(h.raw)
	lines := strings.Split(string(h.raw), "\n")
	h.line = strings.TrimSuffix(lines[0], "\r")
	for _, line := range lines[1:] {
		if f, ok := parseField(strings.TrimSuffix(line, "\r")); ok {
			h.fields = append(h.fields, f)
		}
	}
	return h, nil
}

// announceClose adds "Connection: close" to a response, if it does not have it.
func (h *head) announceClose() {
	end := bytes.IndexByte(h.raw, '\n') + 1
	if end == 0 || h.has("Connection", "close") {
		return
	}
	h.raw = slices.Concat(h.raw[:end], []byte("Connection: close\r\n"), h.raw[end:])
}

// endsInEmptyLine reports whether the head is complete.
func endsInEmptyLine(raw []byte) bool {
	return bytes.HasSuffix(raw, []byte("\n\r\n")) || bytes.HasSuffix(raw, []byte("\n\n"))
}

// A request is an HTTP/1 request that all servers understand in the same way.
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

// readRequest reads and checks the head of one request. It checks the first line before
// it reads the next, because another protocol may have no next line.
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

// isTarget reports whether every byte is accepted in a target. By the standard, bytes from
// 0x80 on are not valid, but programs send them and all servers read them in the same way.
func isTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || c == '#' || c == '\\' || c == '"' || c == '<' || c == '>' {
			return false
		}
	}
	return s != ""
}

// readHost finds the host of the request. If both the target and the Host field name a
// host, the two have to be equal.
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

// checkHost returns an error for a host that is neither a name nor an address.
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

// sameHost compares two spellings of host[:port]. If only one has a port, the ports count
// as equal.
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

// upgrades reports whether the request asks to continue in another protocol that is
// allowed. HTTP/2 and TLS are not: they would hide the requests that follow.
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

// keepsAlive reports whether another request may follow on the connection. After a body
// none may: see outgoing.
func (q *request) keepsAlive() bool {
	if q.hasBody() {
		return false
	}
	if q.minor == 0 {
		return q.has("Connection", "keep-alive")
	}
	return !q.has("Connection", "close")
}

// checkNames returns an error for fields that only some servers read as Content-Length,
// Transfer-Encoding or Host, and for a Connection field that removes one of these.
func (h *head) checkNames() error {
	for _, f := range h.fields {
		if means, ok := judge.FramingAlias(f.name); ok {
			return malformed("the field " + show.Visible(f.name) + " is another spelling of " + means)
		}
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Host"} {
		if h.has("Connection", name) {
			return malformed("its Connection field lets proxies remove " + name)
		}
	}
	return nil
}

// checkOverrides returns why a server could read another request from the fields than the
// one that was checked, or "". requests says whether there are rules about methods and
// paths.
func checkOverrides(fields []field, host string, requests bool) string {
	for _, f := range fields {
		switch {
		case requests && judge.OverridesRequest(f.name):
			return "servers may take another method or path from the field " + show.Visible(f.name) + "; send the request without it"
		case judge.OverridesHost(f.name, f.value) && !(host != "" && sameHost(f.value, host)):
			return "servers may take another host from the field " + show.Visible(f.name) + "; send the request without it"
		}
	}
	return ""
}
