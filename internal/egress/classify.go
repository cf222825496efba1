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

// maxMethod is the longest first word that may still be a method.
const maxMethod = 128

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
	// Servers skip empty lines before a request.
	line := bytes.TrimLeft(b, "\r\n")
	word := 0
	for word < len(line) && isToken(string(line[word:word+1])) {
		word++
	}
	switch {
	case word > maxMethod:
		return opaque
	case word == len(line):
		return textSoFar(b)
	case word == 0 || line[word] != ' ' && line[word] != '\t':
		return opaque
	}
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		return textSoFar(b)
	}
	return classifyLine(line[:end+1])
}

// textSoFar is the class of a first line that is not complete.
func textSoFar(b []byte) class {
	if len(b) > maxHead {
		return isHTTP // which will be refused for its size
	}
	return unsure
}

// classifyLine judges a complete first line that begins with a word and a space.
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
// names HTTP, or is one of HTTP/0.9 with the host in it.
func isRequestLine(line []byte) bool {
	text := strings.ToUpper(string(line))
	if strings.Contains(text, "HTTP/") {
		return true
	}
	words := strings.Fields(text)
	return len(words) == 2 && strings.Contains(words[1], "://")
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
	word, _, _ := bytes.Cut(bytes.TrimLeft(b, "\r\n"), []byte(" "))
	for _, method := range [...]string{"GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI", "PROPFIND", "REPORT", "MKCOL"} {
		if strings.HasPrefix(method, string(word)) {
			return true
		}
	}
	return false
}
