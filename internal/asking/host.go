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

// hostRequest says what is asked for of a refused connection: the one port of the
// one host, by TCP. ok is false for what no rule for a host opens, such as the host's
// loopback.
func (a *Asker) hostRequest(d *plan.Denial) (r grant.Request, ok bool) {
	if d.Rule == judge.RuleNetworkPrivate && d.Addr.IsValid() {
		// It is about the one address, and not about all that its name may lead to.
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

// GivenHosts are the rules with what was given before, nil if nothing was, and
// whether somebody may be asked for more.
func (a *Asker) GivenHosts(d plan.Denial) (rules *judge.Network, ask bool) {
	r, ok := a.hostRequest(&d)
	if !ok {
		return nil, false
	}
	return a.hostRules(), !a.wasRefused(&r)
}

// AskHost waits for a decision about a refused connection. It returns the rules
// with all that was given; nil is no.
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

// hostRules are the plan's rules for the network with the hosts that were given to
// the run, and at the desk for longer than a run; nil if there are none.
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

// NotGiven leaves out the names that could not be looked up before they were given.
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
