package seatbelt

import (
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// maxExpression limits the length of joined expressions. A few long ones are faster than many
// short ones, but each has to be readable.
const maxExpression = 1000

// paths writes the rules about files. The last rule that matches decides. So a deeper line
// comes after the one around it, and patterns come right after the line in which they apply: a
// deeper line may give back what they deny.
func (c *compiler) paths() {
	c.section("files: the longest path decides, so the deepest rule comes last")
	c.rule("allow", []string{"file-read*"}, c.literal("/"))
	for rest := c.lines; len(rest) > 0; {
		n := 1
		for n < len(rest) && depth(rest[n].path) == depth(rest[0].path) {
			n++
		}
		c.level(rest[:n])
		rest = rest[n:]
	}
}

// level writes the lines of one depth: those that allow, the patterns in them, and those that
// deny, joined by folder.
func (c *compiler) level(lines []line) {
	var hidden, kept []string
	for _, l := range lines {
		outer := around(c.lines, l.path)
		switch {
		case l.access == policy.Hidden:
			if outer.access != policy.Hidden {
				hidden = append(hidden, l.path)
			}
			continue
		case l.access == policy.Read && outer.access == policy.Write:
			kept = append(kept, l.path)
		}
		if !l.origin.Untrusted { // an untrusted one allows nothing
			c.give(l)
			c.patterns(l)
		}
	}
	c.rule("deny", writing, c.joined(kept)...)
	c.rule("deny", both, c.joined(hidden)...)
}

// give writes the rule for a readable or writable line.
func (c *compiler) give(l line) {
	filter := c.literal(l.path)
	if l.whole {
		filter = c.subpath(l.path)
	}
	if l.access == policy.Write {
		c.rule("allow", both, filter)
		return
	}
	c.rule("allow", reading, filter)
}

// joined returns filters for paths in all their spellings and everything below them, with one
// expression per folder.
func (c *compiler) joined(paths []string) []string {
	byFolder := map[string][]string{}
	var folders []string
	for _, p := range paths {
		dir := path.Dir(p)
		if byFolder[dir] == nil {
			folders = append(folders, dir)
		}
		byFolder[dir] = append(byFolder[dir], spell(path.Base(p)))
	}
	var filters []string
	for _, dir := range folders {
		start := allSpellings(dir) + "/"
		if dir == "/private" { // also for the links in the root to its entries
			start = "^(" + dataVolume + ")?(/private)?/"
		}
		for _, names := range bounded(byFolder[dir]) {
			filters = append(filters, c.regex(start+names+andBelow))
		}
	}
	return filters
}

// bounded joins expressions into alternatives of a limited length.
func bounded(names []string) []string {
	var out []string
	for len(names) > 0 {
		n, size := 1, len(names[0])
		for n < len(names) && size+len(names[n]) < maxExpression {
			size += len(names[n]) + 1
			n++
		}
		out = append(out, "("+strings.Join(names[:n], "|")+")")
		names = names[n:]
	}
	return out
}

// ancestors allows reading the folders above readable paths, because look-ups go through them.
// Everything else in them stays hidden.
func (c *compiler) ancestors() {
	seen := map[string]bool{}
	filters := []string{c.regex("^/private(/var(/folders(/[^/]+(/[^/]+(/T)?)?)?)?)?$")}
	for _, a := range aliases {
		filters = append(filters, c.literal(a))
	}
	for _, l := range c.lines {
		if l.access == policy.Hidden || l.path == "/" {
			continue
		}
		for _, dir := range pathx.Between("/", l.path) {
			if !seen[dir] && covers(c.lines, dir).access == policy.Hidden {
				seen[dir] = true
				filters = append(filters, c.literal(dir))
			}
		}
	}
	c.section("the way to what can be read and to TMPDIR, and the links in the root")
	c.rule("allow", []string{"file-read-metadata"}, filters...)
}
