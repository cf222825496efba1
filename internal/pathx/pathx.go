// Package pathx contains all path logic: prefixes on component boundaries, depth, patterns,
// and the expansion of the path forms of policies. It never accesses the file system, and its
// paths are always slash-separated.
package pathx

import (
	"path"
	"strings"
)

// Within reports whether p is root or below it. Both are clean and absolute. "/workspace2" is
// not within "/workspace".
func Within(root, p string) bool {
	if root == "/" {
		return strings.HasPrefix(p, "/")
	}
	return p == root || (len(p) > len(root) && p[len(root)] == '/' && p[:len(root)] == root)
}

// Rel returns p relative to root. p must be within root; root itself gives ".".
func Rel(root, p string) string {
	if p == root {
		return "."
	}
	if root == "/" {
		return p[1:]
	}
	return p[len(root)+1:]
}

// Rebase moves p from below one root to the same place below another.
func Rebase(from, to, p string) string {
	if p == from {
		return to
	}
	return path.Join(to, Rel(from, p))
}

// Depth returns the number of components of a clean absolute path; "/" has none.
func Depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// Between returns the folders strictly between root and p, outermost first.
func Between(root, p string) []string {
	var out []string
	for d := path.Dir(p); d != root && Within(root, d) && d != "/"; d = path.Dir(d) {
		out = append(out, d)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// IsGlob reports whether p is a pattern: it contains a star, a question mark, a bracket or
// alternatives, "{a,b}". Braces alone do not count, because "${VAR}" and the names of
// templates contain them too.
func IsGlob(p string) bool {
	braces := false
	for i := range len(p) {
		switch p[i] {
		case '*', '?', '[':
			return true
		case '{':
			braces = true
		}
	}
	return braces && HasChoice(p)
}

// HasChoice reports whether p contains alternatives, "{a,b}".
func HasChoice(p string) bool {
	for i := range len(p) {
		if p[i] != '{' || i > 0 && p[i-1] == '$' {
			continue
		}
		if inner, _, closed := strings.Cut(p[i:], "}"); closed && strings.Contains(inner, ",") {
			return true
		}
	}
	return false
}
