package cloche

import (
	"net/netip"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// checkHost says whether a host could be connected to, or a request be made.
func (s *Session) checkHost(target string) (Decision, error) {
	to, err := policy.ParseDestination(target)
	if err != nil {
		return Decision{}, err
	}
	n := &s.Explain().Network
	if d, ok := checkLoopback(n, to); ok {
		d.Target = target
		return d, nil
	}
	v, denial := judgeDestination(n.Judge(), to)
	d := Decision{Action: "connect", Target: target, Allowed: v.Allowed, Rule: strings.TrimSpace(v.Rule + " " + v.Subject), Reason: v.Reason, Origin: v.Origin}
	if !v.Allowed {
		d.Grant = denial.Grant()
	} else if v.Name != "" && d.Reason == "" {
		d.Reason = "the addresses that it leads to are judged, too, when a command connects"
	}
	return d, nil
}

// judgeDestination asks the judge, and says what the refusal would be.
func judgeDestination(j *plan.NetJudge, to policy.Destination) (plan.NetVerdict, plan.Denial) {
	dest := plan.Dest{Protocol: string(to.Protocol), Port: to.Port}
	if addr, err := netip.ParseAddr(to.Host); err == nil {
		dest.Addr = addr
	} else {
		dest.Names = []string{to.Host}
	}
	op, v := plan.OpConnect, plan.NetVerdict{}
	switch {
	case to.Method != "":
		op, v = plan.OpRequest, j.Request(dest, to.Method, to.Host, to.Path)
	case to.Port == 0 && to.Protocol == policy.ProtocolTCP && !dest.Addr.IsValid():
		if v = j.Name(to.Host); v.Allowed {
			v = j.Connect(dest)
		}
	default:
		v = j.Connect(dest)
	}
	denial := v.Denial(op, dest)
	denial.Method, denial.Path = to.Method, to.Path
	return v, denial
}

// checkLoopback answers for the loopback, which is the sandbox's own: what is
// forwarded there, and else what the command itself listens on.
func checkLoopback(n *plan.Network, to policy.Destination) (Decision, bool) {
	if n.Mode == policy.NetworkHost || !isLoopback(to.Host) {
		return Decision{}, false
	}
	d := Decision{Action: "connect", Allowed: n.Mode != policy.NetworkNone, Rule: plan.RuleNetworkMode + " " + n.Mode.String(), Origin: n.Origin,
		Reason: "it is the sandbox's own loopback, with none of the host's listeners"}
	for _, p := range n.Forward {
		if p.Inside == to.Port && p.Protocol == to.Protocol {
			d.Allowed, d.Rule, d.Reason, d.Origin = true, "network.forward "+p.String(), "", p.Origin
			return d, true
		}
	}
	refusal := plan.Denial{Op: plan.OpConnect, Addr: netip.IPv6Loopback(), Port: to.Port, Protocol: string(to.Protocol), Verdict: plan.Verdict{Rule: plan.RuleNetworkPrivate}}
	if grant := refusal.Grant(); !d.Allowed {
		d.Grant = grant
	} else if grant != "" {
		d.Reason += "; the host's port is reached with " + grant
	}
	return d, true
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}
