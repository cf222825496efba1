package seatbelt

import "strings"

// quote writes a string of the profile language. A quotation mark and a
// backslash are the only bytes that mean something in one; every other stands
// for itself, parentheses, semicolons and line breaks too. NUL ends a text for
// macOS and is in no path: see compiler.quoted.
func quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte('"')
	return b.String()
}
