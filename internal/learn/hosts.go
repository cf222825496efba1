package learn

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// netNeed returns the need behind a denial of the network.
func netNeed(d *plan.Denial) (Need, bool) {
	n := Need{Kind: Connect, Host: d.Host, Class: Plain, Why: d.Reason}
	if len(d.Fix) == 0 {
		n.Class = Closed
		return n, n.Host != ""
	}
	switch e := d.Fix[len(d.Fix)-1]; e.Field {
	case "network.forward":
		n.Kind, n.Host, n.Class, n.Why = Forward, e.Value, Sensitive, "a service of this machine"
		return n, true
	case "sockets":
		return Need{Kind: Socket, Path: e.Value, Class: Sensitive, Why: reasonOr(&d.Decision, "a service of this machine")}, true
	case "network.allow":
		n.Host, n.Why = e.Value, ""
	default:
		return n, false
	}
	if d.Rule == judge.RuleNetworkPrivate {
		n.Class, n.Why = Sensitive, reasonOr(&d.Decision, "an address that is not public")
	}
	return n, true
}

// coversHost reports whether the rule host covers the rule other: it allows all ports
// of the same host. Hosts are compared by their text, because records of connections
// contain no wildcards.
func coversHost(host, other string) bool {
	h, whole := wholeHost(host)
	o, err := policy.ParseHost(other)
	return whole && err == nil && h.Host == o.Host
}

// wholeHost parses a rule for a host, and reports whether it allows all ports.
func wholeHost(s string) (rule policy.HostRule, whole bool) {
	rule, err := policy.ParseHost(s)
	return rule, err == nil && rule.Port == 0 && rule.Protocol == "" && len(rule.Paths) == 0
}

// Ports replaces rules for whole hosts by rules for the ports that were used, according
// to the connections of a run that was allowed to make them. A host to which no
// connection was made keeps its rule for all ports: the command looked it up, and the
// ports that it needs are not known.
func Ports(needs []Need, made []plan.Connection) []Need {
	var out []Need
	for _, n := range needs {
		var ports []string
		rule, whole := wholeHost(n.Host)
		if n.Kind == Connect && whole {
			ports = portsOf(rule.Host, made)
		}
		if len(ports) == 0 {
			out = append(out, n)
		}
		for _, p := range ports {
			narrow := n
			narrow.Host = p
			if rule.Private {
				narrow.Host = "private://" + p
			}
			out = append(out, narrow)
		}
	}
	return out
}

func portsOf(host string, made []plan.Connection) []string {
	var out []string
	for _, c := range made {
		if !c.Allowed || c.Port == 0 || !strings.EqualFold(c.Name, host) && c.Addr.String() != host {
			continue
		}
		rule := net.JoinHostPort(host, strconv.Itoa(c.Port))
		switch c.Protocol {
		case "tcp":
		case "udp":
			rule = "udp://" + rule
		default:
			continue // a look-up, not a connection
		}
		out = append(out, rule)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
