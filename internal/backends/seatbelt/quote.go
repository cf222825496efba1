package seatbelt

import "strings"

// quote returns a string literal of the profile language. Only quotation marks and backslashes
// have a meaning in it; all other bytes stand for themselves, including parentheses,
// semicolons and line breaks. NUL would end the text and is in no path: see compiler.quoted.
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
