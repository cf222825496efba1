package seatbelt

import (
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// aCharacter matches one character of a name, of up to four bytes.
const aCharacter = "[^/][^/]?[^/]?[^/]?"

// The parts of a pattern are the names between slashes. The part "**" stands for any number of
// folders. (A comma in braces does not separate parts, and a slash in braces makes the whole
// pattern one part.)
type parts []string

// partsOf splits an absolute pattern, or one for any depth.
func partsOf(pattern string) parts {
	if !strings.HasPrefix(pattern, "/") {
		pattern = "/**/" + pattern
	}
	pattern = unalias(path.Clean(pattern))
	var out parts
	depth, start := 0, 1
	for i := 1; i <= len(pattern); i++ {
		switch {
		case i == len(pattern) || pattern[i] == '/' && depth == 0:
			out = out.with(pattern[start:i])
			start = i + 1
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
		case pattern[i] == '{':
			depth++
		case pattern[i] == '}':
			depth--
		}
	}
	return out
}

// with adds a part. "**" twice in a row is the same as once.
func (ps parts) with(part string) parts {
	if part == "**" && len(ps) > 0 && ps[len(ps)-1] == part {
		return ps
	}
	return append(ps, part)
}

// unalias is canonical for a pattern. If its first part is a wildcard, it is not changed.
func unalias(pattern string) string {
	if first, _, _ := strings.Cut(pattern[1:], "/"); pathx.IsGlob(first) {
		return pattern
	}
	return canonical(pattern)
}

// expression returns the regular expression for a pattern, without an end.
func (ps parts) expression() string {
	start := "^(" + dataVolume + ")?/"
	if len(ps) > 1 && ps[0] == "private" {
		start, ps = "^("+dataVolume+")?(/private)?/", ps[1:]
	}
	return start + ps.rest()
}

// rest returns the expression for parts after a slash.
func (ps parts) rest() string {
	var b strings.Builder
	for i, part := range ps {
		last := i == len(ps)-1
		switch {
		case part == "**" && last && i == 0:
			b.WriteString("[^/]*") // anything
		case part == "**" && last:
			// It may stand for no folder: then the slash before it is not needed.
			return strings.TrimSuffix(b.String(), "/") + "(/[^/]+)*"
		case part == "**":
			b.WriteString(anyDirs)
		default:
			b.WriteString(partExpression(part))
			if !last {
				b.WriteByte('/')
			}
		}
	}
	return b.String()
}

// partExpression returns the expression for one name of a pattern.
func partExpression(part string) string {
	var b, plain strings.Builder
	flush := func() {
		b.WriteString(spell(plain.String()))
		plain.Reset()
	}
	for i := 0; i < len(part); i++ {
		switch c := part[i]; c {
		case '*':
			flush()
			b.WriteString("[^/]*")
		case '?':
			flush()
			b.WriteString(aCharacter)
		case '[':
			flush()
			e, n := class(part[i:])
			b.WriteString(e)
			i += n - 1
		case '{':
			flush()
			e, n := choice(part[i:])
			b.WriteString(e)
			i += n - 1
		case '\\':
			if i++; i < len(part) {
				plain.WriteByte(part[i])
			}
		default:
			plain.WriteByte(c)
		}
	}
	flush()
	return b.String()
}

// class returns the expression for a class of characters, and the class's length in the
// pattern. A class with a range, a negation or a letter that has lookalikes becomes any
// character: a rule that denies may deny too much, never too little.
func class(s string) (string, int) {
	end := 1
	for end < len(s) && (s[end] != ']' || end == 1) {
		if s[end] == '\\' {
			end++
		}
		end++
	}
	inner, length := s[1:min(end, len(s))], min(end+1, len(s))
	if strings.Trim(inner, "abcdefghijlmnopqrtuvwxyzABCDEFGHIJLMNOPQRTUVWXYZ0123456789_.") != "" {
		return aCharacter, length
	}
	return "[" + strings.ToLower(inner) + strings.ToUpper(inner) + "]", length
}

// choice returns the expression for "{a,b}", and its length in the pattern.
func choice(s string) (string, int) {
	var options []string
	depth, start := 0, 1
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '{':
			depth++
		case s[i] == ',' && depth == 1:
			options = append(options, partsExpression(s[start:i]))
			start = i + 1
		case s[i] == '}':
			if depth--; depth == 0 {
				options = append(options, partsExpression(s[start:i]))
				return "(" + strings.Join(options, "|") + ")", i + 1
			}
		}
	}
	return exactly(s), len(s) // not reached for a valid pattern
}

// partsExpression returns the expression for an alternative, which may contain slashes.
func partsExpression(s string) string {
	if !strings.Contains(s, "/") {
		return partExpression(s)
	}
	return parts(strings.Split(s, "/")).rest()
}
