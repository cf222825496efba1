package seatbelt

import (
	"strconv"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// nameServer is the socket by which the C library looks names up.
const nameServer = "/private/var/run/mDNSResponder"

// network writes what can be reached. A profile knows two kinds of address, this
// machine ("localhost") and all ("*"); rules for hosts are out of its reach.
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

// sockets writes the granted sockets, each exactly.
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

// socket is the filter for one socket. A literal, for a prefix would open those
// beside it.
func (c *compiler) socket(p string) string {
	return "(remote unix-socket (path-literal " + c.quoted(p) + "))"
}

// holdsSocket reports whether a granted socket can be reached at its place.
func holdsSocket(s plan.SocketPath) bool {
	return !s.Abstract() && canonical(s.Source) == canonical(s.Path)
}

// ports writes single ports of the loopback: a published one is the command's to
// listen on, a forwarded one to connect to.
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

// holdsPort reports whether a port is the same inside and out, and of the
// loopback: the command uses the machine's own.
func holdsPort(p plan.Port) bool {
	loopback := p.Address == "127.0.0.1" || p.Address == "::1" || p.Address == "localhost"
	return loopback && p.Host == p.Inside && p.Host > 0 && (p.Protocol == "tcp" || p.Protocol == "udp")
}

func portFilter(side string, p plan.Port) string {
	return "(" + side + " " + p.Protocol + " " + quote("localhost:"+strconv.Itoa(p.Host)) + ")"
}
