// Package runoption writes edits of a policy as options of `cloche run`.
package runoption

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/policy"
)

// flag returns the option that edits a field. It uses a switch, because a map would be
// built at every start of cloche.
func flag(f string) string {
	switch f {
	case "paths.read":
		return "--ro"
	case "paths.write":
		return "--rw"
	case "persist":
		return "--persist"
	case "sockets":
		return "--socket"
	case "network.mode":
		return "--net"
	case "network.allow":
		return "--allow"
	case "network.forward":
		return "--forward"
	case "presets":
		return "--preset"
	}
	return ""
}

// Text returns the options that make the edits, in the form in which they are typed
// into a shell. It is empty if there are none.
func Text(edits ...policy.Edit) string {
	words := make([]string, 0, 2*len(edits))
	for _, e := range edits {
		words = append(words, flag(e.Field), Word(e.Entry()))
	}
	return strings.Join(words, " ")
}

// Word quotes a word for a shell, if necessary. Characters that could control a
// terminal are written as escapes that bash, zsh and ksh read.
func Word(s string) string {
	switch {
	case s != "" && strings.IndexFunc(s, needsQuotes) < 0:
		return s
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		quoted := strconv.QuoteToASCII(s)
		return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func needsQuotes(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !plain && !strings.ContainsRune("/._-+=:@%,~", r)
}
