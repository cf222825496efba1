package judge

import (
	"net/netip"

	"github.com/cloche-dev/cloche/plan"
)

// dnsPort is that of name servers.
const dnsPort = 53

// Unreachable is the record of a connection to an address that a network of the
// command's own has no way to: by its mode, or, of the host's loopback, by being the
// command's own.
func Unreachable(n *plan.Network, protocol string, to netip.AddrPort) plan.Denial {
	d := Dest{Protocol: protocol, Addr: to.Addr(), Port: int(to.Port())}
	if addrKind(d.Addr) == kindLoopback {
		return private(plainAddr(d.Addr), kindLoopback).Denial(plan.OpConnect, d, "", "")
	}
	v := NetDecision{Decision: plan.Decision{Rule: RuleNetworkMode, Subject: n.Mode.String(), Origin: n.Origin}}
	if d.Port == dnsPort {
		v.Reason = "a name server; name the host that it looked for with --allow HOST:PORT, and cloche looks it up"
	}
	return v.Denial(plan.OpConnect, d, "", "")
}

// Unresolved is the record of a name that was looked up where no name is.
func Unresolved(n *plan.Network, name string) plan.Denial {
	v := NetDecision{Decision: plan.Decision{Rule: RuleNetworkMode, Subject: n.Mode.String(), Origin: n.Origin}}
	return v.Denial(plan.OpResolve, Dest{Names: []string{name}}, "", "")
}
