package seatbelt

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A profile identifies files by their names, and moving a folder changes the names of
// everything in it. So three kinds of folders cannot be moved:
//
//	mv app x; cat x/secret            # the folder of something hidden
//	mkdir x; > x/tasks.json; mv x .vscode   # the folder of a protected name
//	mv src/keys .; cat keys/a.pem     # a folder in the one that a pattern is about
//
// For the second reason, such a folder cannot be created either: a profile cannot distinguish
// that from moving one there. Files in it can be used as the rules say.

// moving are the operations that move a file away or remove it. making also includes creating
// a file or moving one there.
var (
	moving = []string{"file-write-unlink"}
	making = []string{"file-write-create", "file-write-unlink"}
)

// pins writes the rules for the folders on the way to stricter rules.
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

// between returns the folders between writable folders and stricter lines in them.
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

// pinPatterns writes the rules for the folders on the way to what patterns match.
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

// prefixes returns the beginnings of a group's patterns: folders that they name, and places
// below which a match may be at any depth.
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
