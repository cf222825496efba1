package seatbelt

import (
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// aCharacter is one character of a name, of up to four bytes.
const aCharacter = "[^/][^/]?[^/]?[^/]?"

// An expression of a pattern is made of its parts, the names between slashes. A
// part "**" stands for any number of folders. (A comma in braces is no border of
// parts, and a slash in braces makes the whole pattern one part.)
type parts []string

// partsOf takes an absolute pattern, or one for any depth, apart.
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

// with adds a part. Folders of any number twice are no more than once.
func (ps parts) with(part string) parts {
	if part == "**" && len(ps) > 0 && ps[len(ps)-1] == part {
		return ps
	}
	return append(ps, part)
}

// unalias is canonical for a pattern, whose first part may be one of the links.
func unalias(pattern string) string {
	if first, _, _ := strings.Cut(pattern[1:], "/"); pathx.IsGlob(first) {
		return pattern
	}
	return canonical(pattern)
}

// expression is the expression for a pattern, without an end.
func (ps parts) expression() string {
	start := "^(" + dataVolume + ")?/"
	if len(ps) > 1 && ps[0] == "private" {
		start, ps = "^("+dataVolume+")?(/private)?/", ps[1:]
	}
	return start + ps.rest()
}

// rest is the expression for parts that follow a slash.
func (ps parts) rest() string {
	var b strings.Builder
	for i, part := range ps {
		last := i == len(ps)-1
		switch {
		case part == "**" && last && i == 0:
			b.WriteString("[^/]*") // whatever there is
		case part == "**" && last:
			// It also stands for no folder: the slash before it is not needed.
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

// partExpression is the expression for one name of a pattern.
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

// class is the expression for a class of characters, and its length in the
// pattern. One with a range, a negation or a letter that has lookalikes is taken
// for any character: a rule that takes away may take too much, never too little.
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

// choice is the expression for "{a,b}", and its length in the pattern.
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
	return exactly(s), len(s) // no pattern that is valid gets here
}

// partsExpression is the expression for an option, which may hold slashes.
func partsExpression(s string) string {
	if !strings.Contains(s, "/") {
		return partExpression(s)
	}
	return parts(strings.Split(s, "/")).rest()
}
