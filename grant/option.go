package grant

import (
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// Option returns a policy option that adds the grant, with its origin. If the path no longer
// exists, it is skipped and reported, like an optional one.
func (g *Grant) Option() policy.Option { return g.option(g.Origin()) }

// Kept returns a policy option that adds a grant of an earlier session. It is in a lower layer
// than Option: what the command line or the program denies stays denied.
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

// addHost adds a rule for the host. If the policy has no network, it gets one in which only
// rules allow hosts.
func (g *Grant) addHost(p *policy.Policy, origin policy.Origin) {
	h, err := policy.ParseHost(g.Host)
	if err != nil || p.Network.Mode == policy.NetworkHost {
		return // it was checked when it was granted; in mode host, no rule is needed
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
