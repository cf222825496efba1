package asking

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N2: what is asked about is one port of one host, by TCP; what no rule for a host
// opens is not asked about.
func TestHostRequest(t *testing.T) {
	addr := netip.MustParseAddr
	connect := func(protocol, host string, a netip.Addr, rule string) plan.Denial {
		return plan.Denial{Decision: plan.Decision{Op: plan.OpConnect, Protocol: protocol, Host: host, Addr: a, Port: 443, Rule: rule}}
	}
	cases := map[string]struct {
		denial plan.Denial
		host   string
		secret bool
	}{
		"a name":       {connect("tcp", "a.example", netip.Addr{}, judge.RuleNetworkAllow), "tcp://a.example:443", false},
		"an address":   {connect("tcp", "2606:2800:220:1::34", addr("2606:2800:220:1::34"), judge.RuleNetworkAllow), "tcp://[2606:2800:220:1::34]:443", false},
		"private":      {connect("tcp", "10.0.0.1", addr("10.0.0.1"), judge.RuleNetworkPrivate), "tcp://10.0.0.1:443", true},
		"loopback":     {connect("tcp", "127.0.0.1", addr("127.0.0.1"), judge.RuleNetworkPrivate), "", false},
		"denied":       {connect("tcp", "a.example", netip.Addr{}, judge.RuleNetworkDeny), "", false},
		"unjudgeable":  {connect("tcp", "a.example", netip.Addr{}, judge.RuleNetworkProtocol), "", false},
		"a datagram":   {connect("udp", "a.example", netip.Addr{}, judge.RuleNetworkAllow), "", false},
		"all hosts":    {connect("tcp", "*", netip.Addr{}, judge.RuleNetworkAllow), "", false},
		"odd spelling": {connect("tcp", "0x7f000001", netip.Addr{}, judge.RuleNetworkAllow), "", false},
		"a look-up":    {plan.Denial{Decision: plan.Decision{Op: plan.OpResolve, Host: "a.example", Rule: judge.RuleNetworkAllow}}, "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			judge.Fixer{}.Fix(&c.denial.Decision)
			a := &Asker{run: "run"}
			r, ok := a.hostRequest(&c.denial)
			if ok != (c.host != "") || r.Host != c.host || r.Secret != c.secret || ok && r.Run != "run" {
				t.Errorf("got %+v, %v", r, ok)
			}
		})
	}
}

// less gives a part of what is asked for.
type less struct{ asked int }

func (l *less) Asked(d *grant.Desk, r grant.Request) {
	l.asked++
	_, _ = d.Decide(r.ID, grant.Decision{Allow: true, Host: "http://a.example/v1/**"})
}

func (*less) Withdrawn(grant.Request) {}

// N2: who gives a part of a host is not asked for the rest again, and the part holds.
func TestHostLess(t *testing.T) {
	l := &less{}
	desk := grant.NewDesk(grant.Options{Approvers: []grant.Approver{l}})
	a := &Asker{desk: Desk{Desk: desk, Given: desk.Grants, Renew: func() {}}, run: "run", plan: &plan.Plan{Network: plan.Network{Mode: policy.NetworkUser}}}
	d := plan.Denial{Decision: plan.Decision{Op: plan.OpConnect, Protocol: "tcp", Host: "a.example", Port: 80, Rule: judge.RuleNetworkAllow}}
	judge.Fixer{}.Fix(&d.Decision)
	for range 3 {
		a.AskHost(t.Context(), d)
	}
	if rules, ask := a.GivenHosts(d); l.asked != 1 || ask || rules == nil || !rules.Name("a.example").Allowed {
		t.Errorf("asked %d times, again %v, rules %v", l.asked, ask, rules)
	}
}
