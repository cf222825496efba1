package seatbelt

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A group is a set of patterns that apply in one line with the same exceptions.
type group struct {
	access policy.Access
	// names are names of folders, at any depth below the line, in which the patterns do not
	// apply. folders are paths of such folders.
	names, folders []string
	patterns       []parts
	// inside are expressions for patterns that apply only below the line.
	inside []string
}

// patterns writes the rules for the names that patterns deny in a line.
func (c *compiler) patterns(l line) {
	if !l.whole {
		return
	}
	for _, g := range c.groups(l) {
		c.group(l, g)
	}
}

// groups returns the patterns that deny something in a line. A pattern that also matches the
// line itself, or a folder above it, only applies to what it matches below the line; the line
// gives back the rest.
func (c *compiler) groups(l line) []*group {
	var groups []*group
	for i := range c.plan.Globs {
		glob := &c.plan.Globs[i]
		if glob.Access >= l.access {
			continue
		}
		names, folders, ok := exceptions(glob, l)
		if !ok {
			continue
		}
		g := groupOf(&groups, glob.Access, names, folders)
		if ps := partsOf(glob.Pattern); beginsAbove(glob, l) {
			g.inside = append(g.inside, ps.below(l.path)...)
		} else {
			g.patterns = append(g.patterns, ps)
		}
	}
	return groups
}

func groupOf(groups *[]*group, access policy.Access, names, folders []string) *group {
	for _, g := range *groups {
		if g.access == access && slices.Equal(g.names, names) && slices.Equal(g.folders, folders) {
			return g
		}
	}
	g := &group{access: access, names: names, folders: folders}
	*groups = append(*groups, g)
	return g
}

// exceptions returns where a pattern does not apply in a line. ok is false if it applies
// nowhere. A folder that the pattern itself matches, or that is in such a folder, is no
// exception.
func exceptions(g *plan.Glob, l line) (names, folders []string, ok bool) {
	for _, e := range g.ExceptUnder {
		switch p := canonical(e); {
		case !strings.HasPrefix(e, "/"):
			if !matchesName(g.Pattern, e) {
				names = append(names, e)
			}
		case pathx.Within(p, l.path):
			if p != l.path || !pathx.MatchGlobExactly(g.Pattern, p) {
				return nil, nil, false
			}
		case pathx.Within(l.path, p) && !pathx.MatchGlob(g.Pattern, p):
			folders = append(folders, p)
		}
	}
	return names, folders, true
}

// matchesName reports whether a pattern may match a folder of that name.
func matchesName(pattern, name string) bool {
	ps := partsOf(pattern)
	return pathx.MatchGlobExactly("/"+ps[len(ps)-1], "/"+name)
}

// beginsAbove reports whether the pattern matches a folder above the line, or matches the line
// itself and the line overrides it: see judge.Files.
func beginsAbove(g *plan.Glob, l line) bool {
	if l.path == "/" {
		return false
	}
	if pathx.MatchGlobExactly(g.Pattern, l.path) {
		yields := l.origin.Layer > g.Origin.Layer || l.access == policy.Write && g.Origin.Layer <= policy.LayerPreset
		if yields {
			return true
		}
	}
	return pathx.MatchGlob(g.Pattern, path.Dir(l.path))
}

// below returns the expressions for what a pattern matches strictly below a folder. The
// beginning of the pattern may match the folder itself.
func (ps parts) below(dir string) []string {
	names := strings.Split(strings.TrimPrefix(dir, "/"), "/")
	start := allSpellings(dir) + "/"
	var out []string
	for i := range ps {
		if i > 0 && ps[i] == "**" && matchesTail(ps[:i], names) {
			return append(out, start+ps[i:].rest())
		}
		if i > 0 && matchesTail(ps[:i], names) {
			out = append(out, start+ps[i:].rest())
		}
	}
	if ps[0] == "**" {
		out = append(out, start+ps.rest())
	}
	return out
}

// matchesTail reports whether the beginning of a pattern matches a folder.
func matchesTail(ps parts, names []string) bool {
	return pathx.MatchGlobExactly("/"+strings.Join(ps, "/"), "/"+strings.Join(names, "/"))
}

// group writes the rules of a group: the first for paths outside excepted folders, the second
// for excepted folders inside a match of a pattern.
func (c *compiler) group(l line, g *group) {
	filters := c.expressions(g, andBelow)
	if len(filters) == 0 {
		return
	}
	operations := both
	if g.access == policy.Read {
		operations = writing
	}
	c.rule("deny", operations, all(append([]string{c.subpath(l.path), anyOf(filters...)}, c.excepted(l, g)...)...))
	if len(g.names) > 0 {
		inExcepted := "/" + anyDirs + exactNames(g.names) + "/"
		c.rule("deny", operations, all(c.subpath(l.path), anyOf(c.expressions(g, inExcepted)...)))
	}
}

// excepted returns filters for paths of a line that are in no excepted folder.
func (c *compiler) excepted(l line, g *group) []string {
	var filters []string
	if len(g.names) > 0 {
		start := "^" + exactly(strings.TrimSuffix(l.path, "/")) + "/"
		filters = append(filters, not(c.regex(start+anyDirs+exactNames(g.names)+"/")))
	}
	for _, f := range g.folders {
		filters = append(filters, not(c.subpath(f)))
	}
	return filters
}

func exactNames(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = exactly(n)
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// expressions returns filters for the patterns of a group, each followed by end. Those for
// names at any depth are joined.
func (c *compiler) expressions(g *group, end string) []string {
	var filters, names []string
	for _, ps := range g.patterns {
		if ps[0] == "**" && len(ps) > 1 {
			names = append(names, ps[1:].rest())
			continue
		}
		filters = append(filters, c.regex(ps.expression()+end))
	}
	for _, joined := range bounded(names) {
		filters = append(filters, c.regex("^/"+anyDirs+joined+end))
	}
	for _, e := range g.inside {
		filters = append(filters, c.regex(e+end))
	}
	return filters
}
