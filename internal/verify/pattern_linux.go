package verify

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// patterns tries each pattern in each writable folder, with a name that does not exist
// yet.
func (r *Run) patterns() {
	for _, g := range r.plan.Globs {
		c := check{rules: []string{"paths.protect"}, subject: g.Pattern, origin: g.Origin}
		if g.Access == policy.Hidden {
			c.rules[0] = "paths.hide"
		}
		var names []example
		for _, root := range r.writableRoots() {
			if x, ok := r.example(g, root); ok {
				names = append(names, x)
			}
		}
		switch {
		case len(names) == 0:
			c = c.untestable("no writable folder has a place for a name that it decides about")
		case g.Access == policy.Hidden:
			c = r.hiddenPattern(c, names)
		default:
			c = r.protectedPattern(c, names)
		}
		r.add(c)
	}
}

// An example is a name that a pattern matches, inside and on the host, with the folders
// that have to be created for it.
type example struct {
	inside, onHost string
	folders        []string // inside
}

// example returns a name below a writable root that the pattern decides about, that
// does not exist on the host, and that no other rule prevents from being created.
func (r *Run) example(g plan.Glob, root plan.Path) (example, bool) {
	for _, p := range examples(g.Pattern, root.Path, r.token) {
		x := example{inside: p, onHost: pathx.Rebase(root.Path, root.Source, p)}
		if v := r.judge.Path(p); v.Access != g.Access || exists(x.onHost) || r.plan.Lookup(p).Path != root.Path {
			continue
		}
		free := true
		for _, d := range pathx.Between(root.Path, p) {
			free = free && r.judge.Path(d).Access == policy.Write
			if !exists(pathx.Rebase(root.Path, root.Source, d)) {
				x.folders = append(x.folders, d)
			}
		}
		if free {
			return x, true
		}
	}
	return example{}, false
}

// protectedPattern tries to create files and folders with these names.
func (r *Run) protectedPattern(c check, names []example) check {
	var last []int // the attempts that must not work
	for _, x := range names {
		r.trace(x.onHost)
		for _, d := range x.folders {
			c.attempts = append(c.attempts, on("mkdir", d))
		}
		last = append(last, len(c.attempts), len(c.attempts)+1)
		c.attempts = append(c.attempts, create(x.inside), on("mkdir", x.inside))
	}
	c.judge = func(a []answer) verdict {
		for i, n := range last {
			if x := names[i/2]; a[n].OK() || appeared(x.onHost) {
				return broken("%s can be made", x.inside)
			}
		}
		return held("%s cannot be made: %v", names[0].inside, a[last[0]].Errno)
	}
	return c
}

// hiddenPattern creates files with these names on the host and tries to read them.
func (r *Run) hiddenPattern(c check, names []example) check {
	for _, x := range names {
		if err := r.plant(x.onHost); err != nil {
			return c.untestable("no file can be made to try it: %v", err)
		}
		c.attempts = append(c.attempts, r.read(x.inside))
	}
	c.judge = func(a []answer) verdict {
		for i, x := range names {
			if a[i].OK() && a[i].N > 0 {
				return broken("%s can be read", x.inside)
			}
		}
		return held("%s cannot be read: %v; its name, size and times can be seen", names[0].inside, a[0].Errno)
	}
	return c
}

// plant creates a file that contains the token.
func (r *Run) plant(p string) error {
	r.trace(p)
	if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.token)
	return errors.Join(err, f.Close())
}

// examples returns paths below root that a pattern matches, the best first. The token
// makes them new where possible. There may be none, because not every pattern matches
// in every folder.
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

// folderName is the name of the folder in which attempts are made.
func folderName(token string) string { return ".cloche-verify-" + token }

// fileName is the name of a file that an attempt creates.
func fileName(token string) string { return "cloche-verify-" + token }

// concrete replaces each wildcard by a text that matches it.
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

// fromClass returns a character of the class at the start of s, and where the class
// ends.
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

// fromBraces returns the first alternative of the braces at the start of s, and where
// the braces end. The alternative may contain braces itself.
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
