package resolve

import (
	"fmt"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// checkLinks checks the links that rules go through. If the command can write where a link is,
// it can replace the link, and the rule would be about another path for the next command:
//
//	paths: {write: [., out]}       # rm -r out; ln -s ~ out
//
// gives away the whole home folder. So a grant through such a link is an error, and a rule
// that hides or protects also protects the link.
func (b *builder) checkLinks() {
	for i := range b.candidates {
		c := &b.candidates[i]
		l, ok := b.loose(c.links)
		switch {
		case !ok:
		case c.locked || c.Access == policy.Hidden || c.Protect:
			b.keepLinks(c)
		case !c.Origin.Untrusted:
			b.failLoose(accessRule(c), orPath(c.Written, c.Path.Path), c.Path.Path, l, c.Origin)
		}
	}
}

// loose returns the first link that the command could replace.
func (b *builder) loose(links []link) (link, bool) {
	for _, l := range links {
		if b.writableAround(l.path) {
			return l, true
		}
	}
	return link{}, false
}

// keepLinks protects the links on the way to a path.
func (b *builder) keepLinks(c *candidate) {
	for _, l := range c.links {
		if !b.writableAround(l.path) || b.hasLine(l.path) {
			continue
		}
		b.plan.Paths = append(b.plan.Paths, plan.Path{Path: l.path, Kind: hostfs.Symlink, Content: plan.Link, Target: l.target,
			Access: policy.Read, Protect: true, Written: c.Written, Origin: c.Origin})
	}
}

func (b *builder) failLoose(rule, written, real string, l link, o policy.Origin) {
	b.fail(&PolicyError{Rule: rule, Path: written, Origin: o,
		Reason: fmt.Sprintf("leads through %s, a link that the command itself could point elsewhere for the next one", l.path),
		Fix:    fmt.Sprintf("name %s, where it leads now", real)})
}

// accessRule returns the name of the rule behind a grant, as in a policy file.
func accessRule(c *candidate) string {
	switch {
	case c.Persisted():
		return "persist"
	case c.Source != c.Path.Path:
		return "binds"
	case c.Access == policy.Write:
		return "paths.write"
	default:
		return "paths.read"
	}
}
