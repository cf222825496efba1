package grant

import (
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// Option adds the grant to a policy, with its origin. A path that does not exist
// any more is skipped and reported, as an optional one is.
func (g *Grant) Option() policy.Option { return g.option(g.Origin()) }

// Kept adds a grant of an earlier session: what the command line or the program
// takes away since stays away.
func (g *Grant) Kept() policy.Option {
	origin := g.Origin()
	origin.Layer = policy.LayerKept
	return g.option(origin)
}

func (g *Grant) option(origin policy.Origin) policy.Option {
	grant := *g
	return func(p *policy.Policy) {
		switch grant.Access {
		case Read:
			grant.addPath(p, policy.Read, origin)
		case Write:
			grant.addPath(p, policy.Write, origin)
		case Connect:
			grant.addHost(p, origin)
		}
	}
}

func (g *Grant) addPath(p *policy.Policy, access policy.Access, origin policy.Origin) {
	p.Paths = append(p.Paths, policy.PathRule{Path: pathx.Literal(g.Path), Access: access, Optional: true, Reason: g.Reason, Origin: origin})
}

// addHost adds the host. Where there is no network at all there is one now, with
// nothing in it but what rules allow.
func (g *Grant) addHost(p *policy.Policy, origin policy.Origin) {
	h, err := policy.ParseHost(g.Host)
	if err != nil || p.Network.Mode == policy.NetworkHost {
		return // it was checked when it was granted; a network that judges nothing needs no rule
	}
	if p.Network.Mode != policy.NetworkUser && p.Network.Origin.Layer > origin.Layer {
		return
	}
	if p.Network.Mode != policy.NetworkUser {
		p.Network.Mode, p.Network.Origin = policy.NetworkUser, origin
	}
	h.Reason, h.Origin = g.Reason, origin
	p.Network.Allow = append(p.Network.Allow, h)
}
