package seatbelt

import (
	"strconv"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// nameServer is the socket that the C library uses to look up names.
const nameServer = "/private/var/run/mDNSResponder"

// network writes the rules for the network. A profile only knows two kinds of addresses, this
// machine ("localhost") and all ("*"); it cannot have rules for hosts.
func (c *compiler) network() {
	c.section("sockets of the run's own, in its folder for temporary files")
	own := `(subpath (param "` + tmpParam + `"))`
	c.rule("allow", []string{"network-bind", "network-inbound"}, "(local unix-socket "+own+")")
	c.rule("allow", []string{"network-outbound"}, "(remote unix-socket "+own+")")
	c.sockets()
	n := &c.plan.Network
	switch n.Mode {
	case policy.NetworkHost:
		c.section("network: host")
		c.rule("allow", []string{"network-outbound"}, "(remote ip)", c.socket(nameServer))
		c.rule("allow", []string{"network-bind", "network-inbound"}, "(local ip)")
		c.always("allow", "system-socket")
	case policy.NetworkLoopback:
		c.section("network: loopback, the machine's own")
		c.rule("allow", []string{"network-outbound"}, `(remote ip "localhost:*")`)
		c.rule("allow", []string{"network-bind", "network-inbound"}, `(local ip "localhost:*")`)
	case policy.NetworkNone, policy.NetworkUser:
		c.ports(n)
	}
}

// sockets writes rules for the granted sockets, each exactly.
func (c *compiler) sockets() {
	var filters []string
	for _, s := range c.plan.Sockets {
		if holdsSocket(s) {
			filters = append(filters, c.socket(canonical(s.Source)))
		}
	}
	if len(filters) > 0 {
		c.section("sockets of the host that are granted")
		c.rule("allow", []string{"network-outbound"}, filters...)
	}
}

// socket returns the filter for one socket. It is a literal, because a prefix would also allow
// sockets next to it.
func (c *compiler) socket(p string) string {
	return "(remote unix-socket (path-literal " + c.quoted(p) + "))"
}

// holdsSocket reports whether a granted socket has the same path inside and outside.
func holdsSocket(s plan.SocketPath) bool {
	return !s.Abstract() && canonical(s.Source) == canonical(s.Path)
}

// ports writes rules for single ports of the loopback: the command may listen on published
// ports and connect to forwarded ones.
func (c *compiler) ports(n *plan.Network) {
	c.section("network: " + n.Mode.String())
	for _, p := range n.Publish {
		if holdsPort(p) {
			c.rule("allow", []string{"network-bind", "network-inbound"}, portFilter("local", p))
		}
	}
	for _, p := range n.Forward {
		if holdsPort(p) {
			c.rule("allow", []string{"network-outbound"}, portFilter("remote", p))
		}
	}
}

// holdsPort reports whether a port is the same inside and outside and on the loopback. Only
// then it works, because the command uses the machine's own loopback.
func holdsPort(p plan.Port) bool {
	loopback := p.Address == "127.0.0.1" || p.Address == "::1" || p.Address == "localhost"
	return loopback && p.Host == p.Inside && p.Host > 0 && (p.Protocol == "tcp" || p.Protocol == "udp")
}

func portFilter(side string, p plan.Port) string {
	return "(" + side + " " + p.Protocol + " " + quote("localhost:"+strconv.Itoa(p.Host)) + ")"
}
