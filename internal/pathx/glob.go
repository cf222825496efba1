package pathx

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// MatchGlob reports whether a pattern matches a clean absolute path, or a
// folder above it: what a rule says of a folder holds for all below. A pattern
// that is not absolute matches at any depth. A malformed pattern matches
// nothing; see ValidGlob.
func MatchGlob(pattern, p string) bool {
	for {
		if MatchGlobExactly(pattern, p) {
			return true
		}
		i := strings.LastIndexByte(p, '/')
		if i <= 0 {
			return false
		}
		p = p[:i]
	}
}

// MatchGlobExactly is MatchGlob for the path itself alone.
func MatchGlobExactly(pattern, p string) bool {
	if !strings.HasPrefix(pattern, "/") {
		pattern = "/**/" + pattern
	}
	ok, err := doublestar.Match(pattern, p)
	return err == nil && ok
}

// ValidGlob reports whether a pattern is well formed.
func ValidGlob(pattern string) bool { return doublestar.ValidatePattern(pattern) }

// A GlobError is the fault of a pattern, and what to do about it.
type GlobError struct{ Reason, Fix string }

// Error returns the reason.
func (e *GlobError) Error() string { return e.Reason }

var (
	errMalformed = &GlobError{"a bracket or brace is not closed, a class has no characters, or nothing follows the last backslash",
		`close it, or write \[, \{ or \\ for the character itself`}
	errSlash = &GlobError{"alternatives in braces hold a slash", "write an entry for each"}
	errAbove = &GlobError{"names no file below **", "write the name of a file or folder after **/"}
)

// ExpandAnywhere is Expand for "**/rest", which is relative to nothing: it holds at any
// depth. It is a *GlobError where the rest leads above.
func ExpandAnywhere(s string, v Vars) (string, error) {
	p, err := Expand("/"+s, v)
	if err == nil && !strings.HasPrefix(p, "/**/") {
		return "", errAbove
	}
	return p, err
}

// NormalGlob returns a pattern in which braces are only those of alternatives, "{a,b}":
// others, as templates have them in names, stand for themselves. It fails for a
// pattern that would match nothing, or not what it seems to: who asks about the
// folders of a path takes patterns apart at slashes.
func NormalGlob(pattern string) (string, *GlobError) {
	if strings.ContainsAny(pattern, "{}") {
		var err *GlobError
		if pattern, err = plainBraces(pattern); err != nil {
			return "", err
		}
	}
	if !ValidGlob(pattern) {
		return "", errMalformed
	}
	return pattern, nil
}

// A brace is one that is open.
type brace struct {
	at           int
	comma, slash bool
}

// plainBraces quotes the braces of a pattern that have no alternatives in them.
func plainBraces(pattern string) (string, *GlobError) {
	var open []brace
	quote := map[int]bool{}
	for i := 0; i < len(pattern); i++ {
		last := len(open) - 1
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '[':
			i += classEnd(pattern[i:])
		case c == '{':
			open = append(open, brace{at: i})
		case c == ',' && last >= 0:
			open[last].comma = true
		case c == '/':
			for k := range open {
				open[k].slash = true
			}
		case c == '}' && last < 0:
			quote[i] = true
		case c == '}':
			b := open[last]
			open = open[:last]
			if b.comma && b.slash {
				return "", errSlash
			}
			quote[b.at], quote[i] = !b.comma, !b.comma
		}
	}
	if len(open) > 0 {
		return "", errMalformed
	}
	return quoteAt(pattern, quote), nil
}

// classEnd is where the class ends that s begins with, 0 if it does not.
func classEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ']':
			return i
		}
	}
	return 0
}

func quoteAt(s string, at map[int]bool) string {
	var b strings.Builder
	for i := range len(s) {
		if at[i] {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// special are the characters that are not themselves in a pattern.
const special = `*?[{}\`

// IsPlain reports whether a name means itself in a pattern.
func IsPlain(name string) bool { return !strings.ContainsAny(name, special) }

// Quote returns the pattern that matches a path and nothing else.
func Quote(p string) string {
	if IsPlain(p) {
		return p
	}
	var b strings.Builder
	for i := range len(p) {
		if strings.IndexByte(special, p[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}
