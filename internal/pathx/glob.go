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
