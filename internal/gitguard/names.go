package gitguard

import (
	"path"
	"strings"
)

// A meaning is what a name means to git.
type meaning int

const (
	ordinary meaning = iota
	dotGit
	head
	objects
	refs
	commonDir
	config
	hooks
	info
	attributes
)

// longestName is the length of the longest name with a meaning.
const longestName = len("config.worktree")

// meaningOf returns what a name means, also where the file system ignores case and invisible
// characters, or drops dots at the end: there git finds the file by its own spelling. Elsewhere
// such a spelling means nothing, and guarding it does no harm.
func meaningOf(name string) meaning {
	if !mayMean(name) {
		return ordinary
	}
	var buffer [longestName]byte
	n := 0
	for i := 0; i < len(name); i++ {
		b := name[i]
		if b >= 0x80 {
			return meaningOfFolded(foldUnicode(name))
		}
		if n < longestName {
			buffer[n] = lower(b)
		}
		n++
	}
	for n > 0 && (name[n-1] == '.' || name[n-1] == ' ') {
		n--
	}
	if n > longestName {
		return ordinary
	}
	return meaningOfFolded(string(buffer[:n]))
}

// mayMean checks the first byte, which is enough for most names that mean nothing.
func mayMean(name string) bool {
	if name == "" {
		return false
	}
	switch b := lower(name[0]); b {
	case '.', 'g', 'h', 'o', 'r', 'c', 'i', 'a':
		return true
	default:
		return b >= 0x80
	}
}

func meaningOfFolded(name string) meaning {
	switch name {
	case ".git", "git~1":
		return dotGit
	case "head":
		return head
	case "objects":
		return objects
	case "refs":
		return refs
	case "commondir":
		return commonDir
	case "config", "config.worktree":
		return config
	case "hooks":
		return hooks
	case "info":
		return info
	case "attributes":
		return attributes
	}
	return ordinary
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// foldUnicode maps the few characters that fold to ASCII letters of git's names and drops all
// others. File systems ignore some of those, and it need not know which: so it takes some harmless
// names for git's, and misses none.
func foldUnicode(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < 0x80:
			b.WriteByte(lower(byte(r)))
		case r == '\u212a': // KELVIN SIGN
			b.WriteByte('k')
		case r == '\u017f': // LATIN SMALL LETTER LONG S
			b.WriteByte('s')
		case r == '\ufb01': // LATIN SMALL LIGATURE FI
			b.WriteString("fi")
		}
	}
	return strings.TrimRight(b.String(), ". ")
}

// notable reports whether a change of this name could matter.
func notable(p Place) bool {
	if meaningOf(p.Name) != ordinary {
		return true
	}
	_, found := hooksAbove(p.Path, 0)
	return found
}

// hooksAbove finds a folder called hooks in the path, starting with the
// component that is skip levels up: how many levels up from path it is.
func hooksAbove(real string, skip int) (levels int, found bool) {
	for levels = 0; real != "/" && real != "." && real != ""; levels++ {
		slash := strings.LastIndexByte(real, '/')
		if levels >= skip && isHooks(real[slash+1:]) {
			return levels, true
		}
		if slash < 0 {
			break
		}
		real = real[:slash]
	}
	return 0, false
}

// isHooks checks the first byte before the rest: it is called for every component of every path.
func isHooks(name string) bool {
	if len(name) < len("hooks") || lower(name[0]) != 'h' && name[0] < 0x80 {
		return false
	}
	return meaningOf(name) == hooks
}

// up is the relative path that many levels up.
func up(levels int) string {
	return strings.TrimSuffix(strings.Repeat("../", levels), "/")
}

// pathUp is the path that many levels up, by its text: the path is real.
func pathUp(real string, levels int) string {
	for range levels {
		real = path.Dir(real)
	}
	return real
}
