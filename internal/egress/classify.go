package egress

import (
	"bytes"
	"strings"
)

// A class is what the first bytes of a client say about the protocol.
type class int

const (
	unsure  class = iota // more bytes are needed
	opaque               // a protocol that names no server
	isTLS                // a handshake record
	isHTTP               // what some server could take for an HTTP/1 request
	isHTTP2              // the preface of HTTP/2
)

// maxMethod is how much is kept of a first word that goes on and on. A server may
// take a method of any length.
const maxMethod = 128

// isBlank reports whether some server takes the byte for a space: Python's splits a
// line at any of these, and skips those before it.
func isBlank(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f || c == 0x85 || c == 0xa0
}

// trimBlanks takes off what servers skip before a request.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

// firstWord is how long the token is that b begins with.
func firstWord(b []byte) int {
	n := 0
	for n < len(b) && isTokenByte(b[n]) {
		n++
	}
	return n
}

// classify looks at the first bytes of a client. Clean HTTP is not asked for
// here, but whatever a lenient server might take for HTTP: it is then read
// strictly.
func classify(b []byte) class {
	if is, more := looksLikeTLS(b); is || more {
		if more {
			return unsure
		}
		return isTLS
	}
	line := trimBlanks(b)
	end := bytes.IndexByte(line, '\n')
	switch {
	case end >= 0:
		return classifyLine(line[:end+1])
	case len(b) <= maxHead:
		return unsure
	}
	if word := firstWord(line); word == len(line) || word > 0 && isBlank(line[word]) {
		return isHTTP // which will be refused for its size
	}
	return opaque
}

// classifyLine judges a complete first line.
func classifyLine(line []byte) class {
	switch {
	case bytes.HasPrefix(line, []byte("PRI * HTTP/2.0\r\n")):
		return isHTTP2
	case isRequestLine(line):
		return isHTTP
	}
	return opaque
}

// isRequestLine reports whether a server might take the line for a request: it
// names HTTP, or a protocol that Node takes for it, or is one of HTTP/0.9, behind
// which servers read a header all the same. The method need not be a token: there
// are servers that take any word for one.
func isRequestLine(line []byte) bool {
	line = trimBlanks(line)
	text := strings.ToUpper(string(line))
	word := firstWord(line)
	if word > 0 && word < len(line) && isBlank(line[word]) && strings.Contains(text, "HTTP/") {
		return true
	}
	words := wordsOf(line)
	if len(words) < 2 {
		return false
	}
	for _, w := range words {
		if len(w) >= 5 && strings.EqualFold(string(w[:5]), "HTTP/") {
			return true
		}
	}
	if last := strings.ToUpper(string(words[len(words)-1])); strings.HasPrefix(last, "RTSP/") || strings.HasPrefix(last, "ICE/") {
		return true
	}
	if end := bytes.IndexByte(line, '\r'); end >= 0 {
		words = wordsOf(line[:end]) // for some servers the line ends here
	}
	if len(words) != 2 {
		return false
	}
	method, target := words[0], words[1]
	return bytes.Contains(target, []byte("://")) ||
		(target[0] == '/' || target[0] == '*') && bytes.Equal(method, bytes.ToUpper(method)) && bytes.ContainsAny(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// wordsOf splits a line as the most lenient server does.
func wordsOf(line []byte) [][]byte {
	plain := bytes.Clone(line)
	for i, c := range plain {
		if isBlank(c) {
			plain[i] = ' '
		}
	}
	return bytes.Fields(plain)
}

// methodOf is the first word of a line that is a request.
func methodOf(line []byte) string {
	method, _, _ := strings.Cut(string(line), " ")
	if !isToken(method) || len(method) > maxMethod {
		return ""
	}
	return method
}

// mayBeMethod reports whether the beginning of a text may be a request with a usual
// method, for the rest of which it pays to wait.
func mayBeMethod(b []byte) bool {
	word, _, _ := bytes.Cut(trimBlanks(b), []byte(" "))
	for _, method := range [...]string{"GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI", "PROPFIND", "REPORT", "MKCOL"} {
		if strings.HasPrefix(method, string(word)) {
			return true
		}
	}
	return false
}
