package seatbelt

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A profile knows files by their names, and a folder that is moved takes what is
// in it along. So three kinds of folder stay where they are:
//
//	mv app x; cat x/secret            # the folder of something hidden
//	mkdir x; > x/tasks.json; mv x .vscode   # the folder of a protected name
//	mv src/keys .; cat keys/a.pem     # a folder in the one that a pattern is about
//
// For the second, such a folder cannot be made either: a profile cannot tell
// that from moving one there. What is in it can be used as the rules say.

// moving is moving a file away or removing it, and making one or moving one
// there.
var (
	moving = []string{"file-write-unlink"}
	making = []string{"file-write-create", "file-write-unlink"}
)

// pins writes the rules for the folders on the way to something stricter.
func (c *compiler) pins() {
	c.section("folders on the way to stricter rules stay where they are")
	c.rule("deny", making, c.joinedExactly(c.between())...)
	for _, l := range c.lines {
		if l.access == policy.Write && l.whole && !l.origin.Untrusted {
			c.pinPatterns(l)
			c.rule("deny", moving, c.literal(l.path))
		}
	}
	c.rule("deny", moving, `(literal (param "`+tmpParam+`"))`)
}

// between are the folders between writable ones and stricter lines in them.
func (c *compiler) between() []string {
	seen := map[string]bool{}
	var dirs []string
	for _, l := range c.lines {
		outer := around(c.lines, l.path)
		if l.access == policy.Write || outer.access != policy.Write {
			continue
		}
		for _, dir := range pathx.Between(outer.path, l.path) {
			if !seen[dir] {
				seen[dir] = true
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// joinedExactly is joined for the paths alone, without what is below them.
func (c *compiler) joinedExactly(paths []string) []string {
	filters := c.joined(paths)
	for i, f := range filters {
		filters[i] = strings.TrimSuffix(f, andBelow+`")`) + `$")`
	}
	return filters
}

// pinPatterns writes the rules for the folders that patterns name on the way to
// what they match.
func (c *compiler) pinPatterns(l line) {
	for _, g := range c.groups(l) {
		folders, places := g.prefixes()
		outside := append([]string{c.subpath(l.path)}, c.excepted(l, g)...)
		if filters := c.expressions(&folders, "$"); len(filters) > 0 {
			c.rule("deny", making, all(append(outside, anyOf(filters...))...))
		}
		if filters := c.expressions(&places, andBelow); len(filters) > 0 {
			c.rule("deny", moving, all(append(outside, anyOf(filters...), "(vnode-type DIRECTORY)")...))
		}
	}
}

// prefixes are the beginnings of a group's patterns: folders that they name, and
// places in which what they match may be at any depth.
func (g *group) prefixes() (folders, places group) {
	seen := map[string]bool{}
	for _, ps := range g.patterns {
		for i := 1; i < len(ps); i++ {
			key := strings.Join(ps[:i], "/")
			if seen[key] || key == "**" {
				continue
			}
			seen[key] = true
			if ps[i-1] == "**" {
				places.patterns = append(places.patterns, ps[:i])
			} else {
				folders.patterns = append(folders.patterns, ps[:i])
			}
		}
	}
	return folders, places
}
