package cloche

import (
	"context"
	"slices"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// hostRequest says what is asked for of a refused connection: the one port of the
// one host, by TCP. ok is false for what no rule for a host opens, such as the host's
// loopback.
func (a *asker) hostRequest(d *plan.Denial) (r grant.Request, ok bool) {
	if d.Rule == plan.RuleNetworkPrivate && d.Addr.IsValid() {
		// It is about the one address, and not about all that its name may lead to.
		one := *d
		one.Host, d = d.Addr.String(), &one
	}
	fix := d.Fix()
	if len(fix) != 1 || fix[0].Field != policy.EditAllow || d.Op != plan.OpConnect || d.Protocol != "tcp" {
		return r, false
	}
	return grant.Request{Host: "tcp://" + fix[0].Value, Access: grant.Connect, Program: d.Program, Pid: d.Pid, Rule: d.Because(), Command: a.command,
		Workspace: a.workspace, Run: a.run, Secret: d.Rule == plan.RuleNetworkPrivate}, true
}

// givenHosts are the rules with what was given before, nil if nothing was, and
// whether somebody may be asked for more.
func (a *asker) givenHosts(d plan.Denial) (rules *plan.NetJudge, ask bool) {
	r, ok := a.hostRequest(&d)
	if !ok {
		return nil, false
	}
	return a.hostRules(), !a.wasRefused(&r)
}

// askHost waits for a decision about a refused connection. It returns the rules
// with all that was given; nil is no.
func (a *asker) askHost(ctx context.Context, d plan.Denial) *plan.NetJudge {
	r, ok := a.hostRequest(&d)
	if !ok || a.wasRefused(&r) {
		return nil
	}
	g, err := a.session.desk.Ask(ctx, r)
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
func (a *asker) hostRules() *plan.NetJudge {
	a.mu.Lock()
	given := slices.Clone(a.hosts)
	a.mu.Unlock()
	given = append(given, a.session.deskGrants()...)
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
	return n.Judge()
}

// notGiven leaves out the names that could not be looked up before they were given.
func (a *asker) notGiven(denied []plan.Denial) []plan.Denial {
	if a == nil {
		return denied
	}
	rules := a.hostRules()
	if rules == nil {
		return denied
	}
	return slices.DeleteFunc(denied, func(d plan.Denial) bool { return d.Op == plan.OpResolve && rules.Name(d.Host).Allowed })
}

// askerOf finds who asks for the process of a refused connection: for the command
// that it belongs to, or the only one that runs.
func (s *netService) askerOf(d *plan.Denial) *asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.owners[d.Pid]
	if r == nil {
		r = s.find(d.Pid)
	}
	switch {
	case r == nil && len(s.records) == 1:
		r = s.records[0]
	case r == nil || !slices.Contains(s.records, r): // it has ended
		return nil
	}
	return r.asker
}

func (s *netService) given(d plan.Denial) (rules *plan.NetJudge, ask bool) {
	if a := s.askerOf(&d); a != nil {
		return a.givenHosts(d)
	}
	return nil, false
}

func (s *netService) ask(ctx context.Context, d plan.Denial) *plan.NetJudge {
	if a := s.askerOf(&d); a != nil {
		return a.askHost(ctx, d)
	}
	return nil
}
