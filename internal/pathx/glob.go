package pathx

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// MatchGlob reports whether a pattern matches a clean absolute path, or a folder above it: a
// rule for a folder applies to everything below. A pattern that is not absolute matches at any
// depth. A malformed pattern matches nothing; see ValidGlob.
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

// MatchGlobExactly is MatchGlob for only the path itself.
func MatchGlobExactly(pattern, p string) bool {
	if !strings.HasPrefix(pattern, "/") {
		pattern = "/**/" + pattern
	}
	ok, err := doublestar.Match(pattern, p)
	return err == nil && ok
}

// ValidGlob reports whether a pattern is well formed.
func ValidGlob(pattern string) bool { return doublestar.ValidatePattern(pattern) }

// A GlobError says what is wrong with a pattern, and what to do about it.
type GlobError struct{ Reason, Fix string }

// Error returns the reason.
func (e *GlobError) Error() string { return e.Reason }

var (
	errMalformed = &GlobError{"a bracket or brace is not closed, a class has no characters, or nothing follows the last backslash",
		`close it, or write \[, \{ or \\ for the character itself`}
	errSlash = &GlobError{"alternatives in braces hold a slash", "write an entry for each"}
	errAbove = &GlobError{"names no file below **", "write the name of a file or folder after **/"}
)

// ExpandAnywhere is Expand for "**/rest", which is relative to no folder: it matches at any
// depth. If the rest leads above with "..", the error is a *GlobError.
func ExpandAnywhere(s string, v Vars) (string, error) {
	p, err := Expand("/"+s, v)
	if err == nil && !strings.HasPrefix(p, "/**/") {
		return "", errAbove
	}
	return p, err
}

// NormalGlob returns a pattern in which the only unquoted braces are alternatives, "{a,b}".
// Other braces, such as those of templates in names, are quoted. It fails for a pattern that
// would match nothing, or not what it seems to: other code splits patterns at slashes.
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

// A brace is an open brace.
type brace struct {
	at           int
	comma, slash bool
}

// plainBraces quotes the braces of a pattern that contain no alternatives.
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

// classEnd returns the index at which the class at the beginning of s ends, or 0 if it does
// not end.
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

// special are the characters with a meaning in a pattern.
const special = `*?[{}\`

// IsPlain reports whether a name has no special characters of a pattern.
func IsPlain(name string) bool { return !strings.ContainsAny(name, special) }

// Quote returns the pattern that matches only the path.
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
