package mcpserver

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// asText makes text of bytes: JSON holds nothing else.
func asText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// visible quotes a name that would not read as what it is.
func visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shortened cuts a name that a client made up, for messages.
func shortened(s string) string {
	const limit = 200
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return visible(s)
}
