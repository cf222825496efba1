package seatbelt

import (
	"strings"
	"unicode/utf8"
)

// The file systems of macOS treat many spellings as one name: they ignore the case of letters,
// and whether é is one character or an e with an accent. A profile compares bytes. For an
// existing file the kernel passes the name on the disk, for a new one the name as the program
// wrote it. So a rule that denies is a regular expression for all spellings; otherwise
// `.ENVRC` could be created where `.envrc` is protected. On a case-sensitive volume such a
// rule denies more than necessary.
//
// Expressions consist of plain characters, classes, groups, "|", "*", "?" and anchors, which
// every matcher treats in the same way. They never use ".", because a name may contain a line
// break.

const (
	anyName  = "[^/]+"
	anyDirs  = "([^/]+/)*" // any number of folders, each with its slash
	andBelow = "(/|$)"     // the path itself, or what is below it
)

// dataVolume is where the volume with everything but the system is mounted; the files at
// /Users are there, too.
const dataVolume = "/System/Volumes/Data"

// aliases are the links in the root to folders of /private.
var aliases = []string{"/tmp", "/var", "/etc"}

// canonical returns the path that the kernel uses for a file.
func canonical(p string) string {
	if rest, ok := strings.CutPrefix(p, dataVolume+"/"); ok {
		p = "/" + rest
	}
	for _, a := range aliases {
		if p == a || strings.HasPrefix(p, a+"/") {
			return "/private" + p
		}
	}
	return p
}

// allSpellings returns the expression for a path, without an end.
func allSpellings(p string) string {
	start, p := "^("+dataVolume+")?", canonical(p)
	if rest, ok := strings.CutPrefix(p, "/private/"); ok {
		return start + "(/private)?/" + spell(rest)
	}
	if p == "/" {
		return start
	}
	return start + "/" + spell(strings.TrimPrefix(p, "/"))
}

// lookalikes are characters that a file system which ignores case and form treats as ASCII:
// the long s, the Kelvin sign, ligatures, and two marks that Unicode has twice.
var lookalikes = []struct{ ascii, as string }{
	{"ffi", "[fF][fF][iI]|ﬃ|ﬀ[iI]|[fF]ﬁ"}, {"ffl", "[fF][fF][lL]|ﬄ|ﬀ[lL]|[fF]ﬂ"},
	{"ff", "[fF][fF]|ﬀ"}, {"fi", "[fF][iI]|ﬁ"}, {"fl", "[fF][lL]|ﬂ"},
	{"ss", "([sS]|ſ)([sS]|ſ)|ß|ẞ"}, {"st", "([sS]|ſ)[tT]|ﬅ|ﬆ"},
	{"s", "[sS]|ſ"}, {"k", "[kK]|\u212a"}, {";", ";|\u037e"}, {"`", "`|\u1fef"},
}

// spell returns the expression for a text in every spelling. Characters beyond ASCII, together
// with a letter before them that they may combine with, match any characters.
func spell(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := spellOne(&b, s)
		s = s[n:]
	}
	return b.String()
}

// spellOne writes the expression for the beginning of a text, and returns the length of that
// beginning.
func spellOne(b *strings.Builder, s string) int {
	if n := foreign(s); n > 0 {
		b.WriteString(anyName)
		return n
	}
	for _, l := range lookalikes {
		if n := len(l.ascii); len(s) >= n && strings.EqualFold(s[:n], l.ascii) && foreign(s[n-1:]) == 0 {
			b.WriteString("(" + l.as + ")")
			return n
		}
	}
	b.WriteString(spellByte(s[0]))
	return 1
}

// foreign returns the length of the run of non-ASCII characters at the beginning of a text,
// including the letter before it.
func foreign(s string) int {
	i := 0
	if isLetter(s[0]) && len(s) > 1 && s[1] >= utf8.RuneSelf {
		i = 1
	}
	start := i
	for i < len(s) && (s[i] >= utf8.RuneSelf || i > start && isLetter(s[i]) && i+1 < len(s) && s[i+1] >= utf8.RuneSelf) {
		i++
	}
	if i == start {
		return 0
	}
	return i
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// spellByte returns the expression for an ASCII character in either case.
func spellByte(c byte) string {
	switch {
	case isLetter(c):
		return "[" + string(c|0x20) + string(c&^0x20) + "]"
	case strings.IndexByte(`\.+*?()[]{}^$|`, c) >= 0:
		return `\` + string(c)
	default:
		return string(c)
	}
}

// exactly returns the expression for a text in exactly one spelling.
func exactly(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`\.+*?()[]{}^$|`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
