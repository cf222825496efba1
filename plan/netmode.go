package plan

import "net/netip"

// dnsPort is that of name servers.
const dnsPort = 53

// Unreachable is the record of a connection to an address that a network of the
// command's own has no way to: by its mode, or, of the host's loopback, by being the
// command's own.
func (n *Network) Unreachable(protocol string, to netip.AddrPort) Denial {
	d := Dest{Protocol: protocol, Addr: to.Addr(), Port: int(to.Port())}
	if addrKind(d.Addr) == kindLoopback {
		return private(plainAddr(d.Addr), kindLoopback).Denial(OpConnect, d)
	}
	v := NetVerdict{Verdict: Verdict{Rule: RuleNetworkMode, Subject: n.Mode.String(), Origin: n.Origin}}
	if d.Port == dnsPort {
		v.Reason = "a name server; name the host that it looked for with --allow HOST:PORT, and cloche looks it up"
	}
	return v.Denial(OpConnect, d)
}

// Unresolved is the record of a name that was looked up where no name is.
func (n *Network) Unresolved(name string) Denial {
	v := NetVerdict{Verdict: Verdict{Rule: RuleNetworkMode, Subject: n.Mode.String(), Origin: n.Origin}}
	return v.Denial(OpResolve, Dest{Names: []string{name}})
}
