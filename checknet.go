package cloche

import (
	"net/netip"
	"strings"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// checkHost says whether a host could be connected to, or a request be made.
func (s *Session) checkHost(target string) (Decision, error) {
	to, err := policy.ParseDestination(target)
	if err != nil {
		return Decision{}, err
	}
	n := &s.current().Network
	if d, ok := checkLoopback(n, to); ok {
		d.Target = target
		return d, nil
	}
	v, denial := judgeDestination(n.Judge(), to)
	d := Decision{Op: plan.OpConnect, Target: target, Allowed: v.Allowed, Rule: strings.TrimSpace(v.Rule + " " + v.Subject), Reason: v.Reason, Origin: v.Origin}
	if !v.Allowed {
		d.allowBy(&denial)
	} else if v.Name != "" && d.Reason == "" {
		d.Reason = "the addresses that it leads to are judged, too, when a command connects"
	}
	return d, nil
}

// judgeDestination asks the judge, and says what the refusal would be.
func judgeDestination(j *plan.NetJudge, to policy.Destination) (plan.NetVerdict, plan.Denial) {
	dest := plan.Dest{Protocol: to.Protocol, Port: to.Port}
	if addr, err := netip.ParseAddr(to.Host); err == nil {
		dest.Addr = addr
	} else {
		dest.Names = []string{to.Host}
	}
	op := plan.OpConnect
	if to.Method != "" {
		op = plan.OpRequest
	}
	ask := func(dest plan.Dest) plan.NetVerdict {
		switch {
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
	denial := v.Denial(op, dest)
	denial.Method, denial.Path = to.Method, to.Path
	return v, denial
}

// byAddress asks about a name again, with an address. A rule for all addresses lets a name be
// looked up, and the address that it leads to be used; any public one stands for that.
func byAddress(ask func(plan.Dest) plan.NetVerdict, dest plan.Dest, refused plan.NetVerdict) plan.NetVerdict {
	for _, public := range []string{"8.8.8.8", "2001:4860:4860::8888"} {
		dest.Addr = netip.MustParseAddr(public)
		if v := ask(dest); v.Allowed {
			v.Name = dest.Names[0]
			return v
		}
	}
	return refused
}

// checkLoopback answers for the loopback, which is the sandbox's own: what is
// forwarded there, and else what the command itself listens on.
func checkLoopback(n *plan.Network, to policy.Destination) (Decision, bool) {
	if n.Mode == policy.NetworkHost || !isLoopback(to.Host) {
		return Decision{}, false
	}
	d := Decision{Op: plan.OpConnect, Allowed: n.Mode != policy.NetworkNone, Rule: plan.RuleNetworkMode + " " + n.Mode.String(), Origin: n.Origin,
		Reason: "it is the sandbox's own loopback, with none of the host's listeners"}
	for _, p := range n.Forward {
		if p.Inside == to.Port && p.Protocol == to.Protocol {
			d.Allowed, d.Rule, d.Reason, d.Origin = true, "network.forward "+p.String(), "", p.Origin
			return d, true
		}
	}
	refusal := plan.Denial{Op: plan.OpConnect, Addr: netip.IPv6Loopback(), Port: to.Port, Protocol: to.Protocol, Verdict: plan.Verdict{Rule: plan.RuleNetworkPrivate}}
	if fix := refusal.Fix(); !d.Allowed {
		d.Fix = fix
	} else if len(fix) > 0 {
		d.Reason += "; the host's port is reached with " + runoption.Text(fix...)
	}
	return d, true
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}
