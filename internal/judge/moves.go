package judge

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Below returns the names, relative to a path, at which rules may begin to hold
// that do not hold for the path itself: what a folder that is put there must not
// already contain.
func (j *Files) Below(inside string) []string {
	var names []string
	for _, e := range j.lines {
		if e.Access != policy.Write && e.Path != inside && pathx.Within(inside, e.Path) {
			names = append(names, pathx.Rel(inside, e.Path))
		}
	}
	for _, list := range j.named {
		for _, p := range list {
			names = p.below(inside, names)
		}
	}
	return names
}

// below adds the rest of a pattern "**/a/b" for a path that ends in "a".
func (p *pattern) below(inside string, names []string) []string {
	for i := 1; i < len(p.tail); i++ {
		if p.tail[i] == '/' && strings.HasSuffix(inside, p.tail[:i]) {
			names = append(names, p.tail[i+1:])
		}
	}
	return names
}

// fixedPart is the folder that everything a pattern matches lies in.
func fixedPart(g *plan.Glob) string {
	if !strings.HasPrefix(g.Pattern, "/") {
		return "/"
	}
	fixed := g.Pattern
	if i := strings.IndexAny(fixed, `*?[{\`); i >= 0 {
		fixed = fixed[:i]
	}
	return path.Dir(fixed + "x")
}

// NeedsWalk reports whether only a look at every file in a folder can tell if
// moving it would put something where a rule forbids it: where a pattern is
// about more than names at any depth, such as "src/**/*.pem", where the folder or one
// in it is one in which a pattern does not hold, and will not be, or where it gets
// to another line, from which its links lead elsewhere.
func (j *Files) NeedsWalk(from, to string) bool {
	fromLine, toLine := j.line(from, trusted), j.line(to, trusted)
	return j.aboutPlaces || fromLine.Path != toLine.Path || slices.ContainsFunc(j.excepting, func(p pattern) bool {
		if p.excepted(toLine.Path, to+"/x") {
			return false
		}
		return p.excepted(fromLine.Path, from+"/x") || from != to && slices.ContainsFunc(p.ExceptUnder, func(folder string) bool {
			return strings.HasPrefix(folder, "/") && pathx.Within(from, folder)
		})
	})
}

// noteMoves notes what NeedsWalk asks of a pattern. Most patterns share one list
// of exceptions.
func (j *Files) noteMoves(p pattern) {
	j.aboutPlaces = j.aboutPlaces || p.isAboutPlaces()
	if strings.Contains(strings.TrimPrefix(strings.TrimPrefix(p.Pattern, "/"), "**/"), "/") {
		j.parted = append(j.parted, p)
	}
	if len(p.ExceptUnder) == 0 {
		return
	}
	same := func(o pattern) bool { return slices.Equal(o.ExceptUnder, p.ExceptUnder) }
	if !slices.ContainsFunc(j.excepting, same) {
		j.excepting = append(j.excepting, p)
	}
}

// isAboutPlaces reports whether the pattern depends on more than the last name
// of a path. One like "**/*.pem" matched what is moved before it was, too.
func (p pattern) isAboutPlaces() bool {
	rest := strings.TrimPrefix(strings.TrimPrefix(p.Pattern, "/"), "**/")
	return p.tail == "" && (strings.Contains(rest, "/") || strings.HasPrefix(p.Pattern, "/") && !strings.HasPrefix(p.Pattern, "/**/"))
}
