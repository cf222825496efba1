package asking

import (
	"context"
	"slices"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// hostRequest returns the request for a denied connection: one port of one host, by
// TCP. ok is false if no rule for a host can allow it, as for the host's loopback.
func (a *Asker) hostRequest(d *plan.Denial) (r grant.Request, ok bool) {
	if d.Rule == judge.RuleNetworkPrivate && d.Addr.IsValid() {
		// The request is about this one address, not about every address that its name may lead
		// to.
		one := *d
		one.Host, d = d.Addr.String(), &one
		judge.Fixer{}.Fix(&one.Decision)
	}
	if len(d.Fix) != 1 || d.Fix[0].Field != "network.allow" || d.Op != plan.OpConnect || d.Protocol != "tcp" {
		return r, false
	}
	r = a.about(d)
	r.Host, r.Access, r.Secret = "tcp://"+d.Fix[0].Value, grant.Connect, d.Rule == judge.RuleNetworkPrivate
	return r, true
}

// GivenHosts returns the rules with earlier grants, or nil if there are none, and
// whether a person may be asked for more.
func (a *Asker) GivenHosts(d plan.Denial) (rules *judge.Network, ask bool) {
	r, ok := a.hostRequest(&d)
	if !ok {
		return nil, false
	}
	return a.hostRules(), !a.wasRefused(&r)
}

// AskHost waits for a decision about a denied connection. It returns the rules with all
// grants, or nil if the answer is no.
func (a *Asker) AskHost(ctx context.Context, d plan.Denial) *judge.Network {
	r, ok := a.hostRequest(&d)
	if !ok || a.wasRefused(&r) {
		return nil
	}
	g, err := a.desk.Ask(ctx, r)
	if err != nil {
		a.noteRefusal(ctx, r, err)
		return nil
	}
	a.noteGrant(g)
	a.noteLess(&r, &r, g)
	a.mu.Lock()
	if !slices.Contains(a.hosts, *g) {
		a.hosts = append(a.hosts, *g)
	}
	a.mu.Unlock()
	return a.hostRules()
}

// hostRules returns the plan's rules for the network with the hosts that were granted
// to this run, or at the desk for longer than one run. It returns nil if there are
// none.
func (a *Asker) hostRules() *judge.Network {
	a.mu.Lock()
	given := slices.Clone(a.hosts)
	a.mu.Unlock()
	given = append(given, a.desk.Given()...)
	p := policy.Policy{Network: policy.Network{Mode: policy.NetworkUser}}
	now := time.Now()
	for i := range given {
		if g := &given[i]; g.Access == grant.Connect && g.Live(now) {
			g.Option()(&p)
		}
	}
	if len(p.Network.Allow) == 0 {
		return nil
	}
	n := a.plan.Network
	n.Allow = slices.Clone(n.Allow)
	for _, rule := range p.Network.Allow {
		n.Allow = append(n.Allow, plan.HostPort(rule))
	}
	return judge.NewNetwork(&n)
}

// NotGiven removes denied look-ups of names that were granted later.
func (a *Asker) NotGiven(denied []plan.Denial) []plan.Denial {
	if a == nil {
		return denied
	}
	rules := a.hostRules()
	if rules == nil {
		return denied
	}
	return slices.DeleteFunc(denied, func(d plan.Denial) bool { return d.Op == plan.OpResolve && rules.Name(d.Host).Allowed })
}
