package verify

import (
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// examples returns paths below root that a pattern matches, new ones as far as the
// token makes them so, best first. There may be none: not every pattern
// reaches into every folder.
func examples(pattern, root, token string) []string {
	full := pattern
	if !strings.HasPrefix(full, "/") {
		full = "/**/" + full
	}
	tail := full
	if i := strings.LastIndex(full, "**"); i >= 0 {
		tail = full[i+2:]
	}
	tail = concrete(tail, token)
	var out []string
	for _, p := range []string{
		path.Join(root, folderName(token), tail), path.Join(root, tail), path.Join(root, folderName(token), "x"),
		path.Clean(concrete(strings.ReplaceAll(full, "**", folderName(token)), token)),
	} {
		if p != root && pathx.Within(root, p) && pathx.MatchGlob(pattern, p) {
			out = append(out, p)
		}
	}
	return out
}

// folderName is the name of the folder that attempts are made in.
func folderName(token string) string { return ".cloche-verify-" + token }

// fileName is the name of a file that an attempt makes.
func fileName(token string) string { return "cloche-verify-" + token }

// concrete puts something that matches in the place of each wildcard.
func concrete(pattern, token string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			b.WriteString(token)
		case '?':
			b.WriteByte('x')
		case '[':
			char, end := fromClass(pattern[i:])
			b.WriteByte(char)
			i += end
		case '{':
			choice, end := fromBraces(pattern[i:])
			b.WriteString(concrete(choice, token))
			i += end
		case '\\':
			if i++; i < len(pattern) {
				b.WriteByte(pattern[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// fromClass returns a character of the class that s begins with, and where the
// class ends.
func fromClass(s string) (char byte, end int) {
	end = strings.IndexByte(s, ']')
	if end < 2 {
		return s[0], 0
	}
	inner := s[1:end]
	if inner[0] != '!' && inner[0] != '^' {
		return inner[0], end
	}
	for c := byte('a'); c <= 'z'; c++ {
		if ok := pathx.MatchGlob("/"+s[:end+1], "/"+string(c)); ok {
			return c, end
		}
	}
	return '_', end
}

// fromBraces returns the first alternative of the braces that s begins with, and
// where they end. It may hold braces itself.
func fromBraces(s string) (choice string, end int) {
	depth, comma := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == '{':
			depth++
		case c == ',' && depth == 1 && comma == 0:
			comma = i
		case c == '}' && depth == 1:
			if comma == 0 {
				comma = i
			}
			return s[1:comma], i
		case c == '}':
			depth--
		}
	}
	return "", 0
}
