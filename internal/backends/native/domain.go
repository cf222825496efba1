package native

import (
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A grant is a right that the Landlock domain allows beyond reading.
type grant struct {
	fd     sysprog.Arg
	rights uint64
	line   *plan.Path
}

// domain returns what the second layer, the Landlock domain, allows.
func (c *compiler) domain() *program.Domain {
	return &program.Domain{Plan: c.plan, Snap: c.snap, Guards: c.guards, Brokered: c.judged()}
}

// layered reports whether this program makes the second layer.
func (c *compiler) layered() bool { return c.domain().Available() && !c.noDomain }

// newRuleset makes the ruleset for a domain with these scopes. It comes right after the
// descriptors are installed, while the number for its rules is free.
func (c *compiler) newRuleset(scopes uint64) {
	if c.layered() {
		c.ruleset = program.NewRuleset(c.do("make a Landlock ruleset"), c.domain().Handled(scopes), c.fds.Free)
	}
}

// keep grants the rights of a writable line, using a descriptor of what it shows. If there is
// nothing to grant, it closes the descriptor.
func (c *compiler) keep(b sysprog.Block, e *plan.Path, fd sysprog.Arg) {
	rights := c.rights(e)
	if rights == 0 {
		b.Close(fd)
		return
	}
	c.grants = append(c.grants, grant{fd, rights, e})
}

// rights returns a line's rights beyond those of the root, 0 for none.
func (c *compiler) rights(e *plan.Path) uint64 {
	if !c.layered() {
		return 0
	}
	return c.domain().Rights(e)
}

// addRules fills the ruleset: the rights of the root, and the grants.
func (c *compiler) addRules(root sysprog.Arg) {
	if !c.layered() {
		return
	}
	if rights := c.domain().OfRoot(); rights != 0 {
		line := c.plan.Lookup("/")
		c.ruleset.Allow(c.by(line.Origin, "Landlock: "+line.Access.String()+" /"), root, rights)
	}
	for _, g := range c.grants {
		b := tolerant(c.by(g.line.Origin, "Landlock: "+policy.Write.String()+" "+g.line.Path), g.line)
		c.ruleset.Allow(b, g.fd, g.rights)
	}
}

// enterDomain enforces the ruleset. The kernel allows 16 nested domains. Inside that many
// sandboxes the second layer is left out, unless something depends on it.
func (c *compiler) enterDomain(ruleset sysprog.Arg) {
	if !c.layered() {
		return
	}
	b := c.do("enter the Landlock domain")
	if !c.domain().Needed() {
		b = b.Ignoring(sysprog.E2BIG)
	}
	b.LandlockRestrictSelf(ruleset)
}
