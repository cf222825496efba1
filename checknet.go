package cloche

import (
	"net/netip"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// checkHost reports whether a command could connect to a host, or make a request.
func (s *Session) checkHost(target string) (plan.Decision, error) {
	to, err := policy.ParseDestination(target)
	if err != nil {
		return plan.Decision{}, err
	}
	n := &s.current().Network
	if d, ok := checkLoopback(n, to); ok {
		return d, nil
	}
	dest := judge.Dest{Protocol: to.Protocol, Port: to.Port}
	if addr, err := netip.ParseAddr(to.Host); err == nil {
		dest.Addr = addr
	} else {
		dest.Names = []string{to.Host}
	}
	j := judge.NewNetwork(n)
	opaque := to.TLS && !j.Inspects(to.Host, to.Port)
	if opaque { // nobody sees the request
		to.Method, to.Path = "", ""
	}
	op := plan.OpConnect
	if to.Method != "" {
		op = plan.OpRequest
	}
	v := decideDestination(j, to, dest)
	if to.TLS && !opaque {
		dest.Protocol = policy.HTTPS
	}
	d := v.Denial(op, dest, to.Method, to.Path).Decision
	if d.Allowed && v.Name != "" && d.Reason == "" {
		d.Reason = "the addresses that it leads to are judged, too, when a command connects"
		if opaque && n.Mode == policy.NetworkUser {
			d.Reason = "every method and path, because no rule looks inside TLS with it; " + d.Reason
		}
	}
	return d, nil
}

// decideDestination decides about a connection, a name without a port, or a request.
func decideDestination(j *judge.Network, to policy.Destination, dest judge.Dest) judge.NetDecision {
	ask := func(dest judge.Dest) judge.NetDecision {
		switch {
		case to.Method != "" && to.TLS:
			return j.RequestTLS(dest, to.Method, to.Host, to.Path)
		case to.Method != "":
			return j.Request(dest, to.Method, to.Host, to.Path)
		case to.Port == 0 && to.Protocol == "tcp" && len(dest.Names) > 0:
			if v := j.Name(to.Host); !v.Allowed {
				return v
			}
		}
		return j.Connect(dest)
	}
	v := ask(dest)
	if !v.Allowed && !dest.Addr.IsValid() && j.Name(to.Host).Allowed {
		v = byAddress(ask, dest, v)
	}
	return v
}

// byAddress asks about a name again, together with an address. A rule for all addresses allows
// the lookup of a name and the use of its address. The address is not known here, so public
// sample addresses stand for it.
func byAddress(ask func(judge.Dest) judge.NetDecision, dest judge.Dest, refused judge.NetDecision) judge.NetDecision {
	for _, public := range []string{"8.8.8.8", "2001:4860:4860::8888"} {
		dest.Addr = netip.MustParseAddr(public)
		if v := ask(dest); v.Allowed {
			v.Name = dest.Names[0]
			return v
		}
	}
	return refused
}

// checkLoopback decides about loopback addresses. The loopback is the sandbox's own: only
// forwarded ports and the command's own listeners are there.
func checkLoopback(n *plan.Network, to policy.Destination) (plan.Decision, bool) {
	if n.Mode == policy.NetworkHost || !isLoopback(to.Host) {
		return plan.Decision{}, false
	}
	d := plan.Decision{Op: plan.OpConnect, Host: to.Host, Port: to.Port, Protocol: to.Protocol,
		Allowed: n.Mode != policy.NetworkNone, Rule: judge.RuleNetworkMode, Subject: n.Mode.String(), Origin: n.Origin,
		Reason: "it is the sandbox's own loopback, with none of the host's listeners"}
	for _, p := range n.Forward {
		if p.Inside == to.Port && p.Protocol == to.Protocol {
			d.Allowed, d.Rule, d.Subject, d.Reason, d.Origin = true, "network.forward", p.String(), "", p.Origin
			return d, true
		}
	}
	refusal := plan.Decision{Op: plan.OpConnect, Addr: netip.IPv6Loopback(), Port: to.Port, Protocol: to.Protocol, Rule: judge.RuleNetworkPrivate}
	judge.Fixer{}.Fix(&refusal)
	if !d.Allowed {
		d.Fix = refusal.Fix
	} else if len(refusal.Fix) > 0 {
		d.Reason += "; the host's port is reached with " + runoption.Text(refusal.Fix...)
	}
	return d, true
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}
