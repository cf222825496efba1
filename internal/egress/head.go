package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxHead bounds the first line and the header of a message together.
	maxHead = 64 << 10
	// maxResponseHead is the same for responses.
	maxResponseHead = 256 << 10
	// maxFields bounds the lines of a header.
	maxFields = 256
)

// A malformed error says why a request is not one that every server would
// understand in the same way.
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
	raw    []byte // of a response: as the server sent it
}

// readFields reads the lines up to the empty one, accepting only lines that end in CR LF
// and have no other CR, LF or NUL, and fields that RFC 9112 lets a server
// accept with one meaning: no space before the colon, no folded lines.
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

// readLine reads one line without its end, taking its bytes off those that are left.
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

// has reports whether one of the comma-separated words of a field is the word.
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

// bytes is the head as it is sent.
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

// bodyFraming reads Content-Length and Transfer-Encoding. Both together, either
// twice, or any coding but "chunked" is what requests are smuggled with.
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

// readResponse reads the head of a response as it is. Servers are not what the
// gate protects from, and clients put up with a lot. What does not begin like a
// response of HTTP/1 has an empty head, and a body that ends with the connection.
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

// announceClose adds to a response that the connection ends after it, unless the
// response says so.
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
