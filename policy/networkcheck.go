package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// This file checks and merges the network part of documents and policies.

func (c *checker) network() {
	n := c.doc.Network
	if n == nil {
		return
	}
	c.hosts("network.allow", n.Allow, true)
	c.hosts("network.deny", n.Deny, false)
	checkPorts(c, "network.publish", n.Publish)
	checkPorts(c, "network.forward", n.Forward)
	if n.Mode != nil && *n.Mode != NetworkUser {
		c.otherMode(n)
	}
}

// otherMode reports settings that have no meaning in modes without rules for hosts.
func (c *checker) otherMode(n *networkSection) {
	at := c.where("network.mode")
	if len(n.Allow) > 0 {
		c.failf("network.allow", "write mode: user, or remove the list", "a list of allowed hosts has no meaning with mode %s%s", n.Mode, at)
	}
	if n.Link != nil && *n.Link != LinkAuto {
		c.failf("network.link", "write mode: user, or remove the link", "the mode %s%s has no link", n.Mode, at)
	}
	if *n.Mode != NetworkHost {
		return
	}
	if len(n.Deny) > 0 && !(c.merged && *c.doc.Require == BestEffort) {
		fix := "write mode: user, or remove the list"
		if c.merged {
			fix = "write mode: user, or require: best-effort"
		}
		c.failf("network.deny", fix, "hosts cannot be denied with mode host%s, which shares the host's network unjudged", at)
	}
	const fix, message = "remove the list, or write another mode", "with mode host%s every port is the host's own"
	if len(n.Publish) > 0 {
		c.failf("network.publish", fix, message, at)
	}
	if len(n.Forward) > 0 {
		c.failf("network.forward", fix, message, at)
	}
}

func (c *checker) hosts(list string, entries []hostEntry, allow bool) {
	for i, e := range entries {
		if err := checkInspect(&e, allow); err != nil {
			c.fail(indexed(list, i), err)
			continue
		}
		r := e.rule(Origin{})
		c.fail(indexed(list, i), r.check(allow))
		entries[i] = r.entry()
	}
}

// checkInspect checks inspect, which only allowed hosts have.
func checkInspect(e *hostEntry, allow bool) error {
	if e.Inspect != nil && !allow {
		return faultf("leave inspect out", "%q is denied, so there is nothing to look into", e.Host)
	}
	return e.inspected()
}

// check checks and normalizes a rule of the allow or the deny list.
func (r *HostRule) check(allow bool) error {
	if strings.Contains(r.Host, "://") {
		return faultf("write the host alone, and its protocol, port and paths apart", "%q holds a scheme", r.Host)
	}
	if bare, port, err := splitPort(r.Host, r.Host); err == nil && !port.IsZero() {
		return faultf(fmt.Sprintf("write host: %s and port: %s", bare, port), "%q holds a port", r.Host)
	}
	if err := r.normalize(r.Host); err != nil {
		return err
	}
	if allow {
		return r.Openable()
	}
	if r.Protocol == HTTPS && len(r.Methods) == 0 && slices.Equal(r.Paths, anyPath) {
		r.Protocol, r.Paths = "tcp", nil // all of TLS is denied: nobody has to look inside
	}
	if r.Private {
		return faultf("leave private out", "%q is denied, whatever addresses it leads to", r.Host)
	}
	return nil
}

// Openable reports why no rule can open the host: it is the host's loopback. It
// returns nil for other hosts.
func (r HostRule) Openable() error {
	if r.Host != "localhost" && !strings.HasSuffix(r.Host, ".localhost") && !loopbackOnly(r.Host) {
		return nil
	}
	port := r.ports().String()
	if port == "" || r.LastPort != 0 {
		port = "PORT"
	}
	return faultf("forward its ports one by one: forward: ["+port+"], or --forward "+port,
		"%q is the host's loopback, which no rule for hosts opens", r.Host)
}

// loopbackOnly reports whether an address or CIDR contains only loopback addresses.
func loopbackOnly(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback() || addr.IsUnspecified()
	}
	prefix, err := netip.ParsePrefix(host)
	return err == nil && prefix.Addr().IsLoopback() && prefix.Bits() >= 8
}

// checkPorts reports wrong ports, and two entries of a list that listen on the same port.
func checkPorts[P publishedPort | forwardedPort](c *checker, list string, entries []P) {
	first := map[listener]string{}
	for i, e := range entries {
		r := PortRule(e)
		_, err := parsePortRule(r.String(), list == "network.forward")
		c.fail(indexed(list, i), err)
		at := r.listener(list)
		switch other, twice := first[at]; {
		case at.port == 0:
		case !twice:
			first[at] = r.String()
		case other != r.String():
			c.failf(indexed(list, i), "keep one of them", "%s and %s listen on the same port", other, r)
		}
	}
}

// A listener is where a published or forwarded port accepts connections.
type listener struct {
	address  string
	port     int
	protocol string
}

func (r PortRule) listener(list string) listener {
	if list == "network.forward" {
		return listener{port: r.Inside, protocol: r.Protocol}
	}
	return listener{cmp.Or(r.Address, "127.0.0.1"), r.Host, r.Protocol}
}

func (m *merger) network(l layered) {
	n, p := l.doc.Network, &m.policy.Network
	if n == nil {
		return
	}
	mode, field := n.Mode, "network.mode"
	opener := l.layer == LayerTool && p.Mode == NetworkHost // all hosts are open already
	if mode == nil && len(n.Allow) > 0 && !l.untrusted && !opener {
		implied := NetworkUser
		mode, field = &implied, "network.allow"
	}
	mergeEnum(m, l, field, mode, &p.Mode, &p.Origin)
	mergeTrusted(m, l, "network.link", n.Link, &p.Link, &p.LinkOrigin)
	for i, h := range n.Allow {
		if o, ok := m.loosen(l, indexed("network.allow", i), "network allow %s", h.rule(Origin{})); ok {
			p.Allow = append(p.Allow, h.rule(o))
		}
	}
	for i, h := range n.Deny {
		p.Deny = append(p.Deny, h.rule(l.origin(indexed("network.deny", i))))
	}
	p.Publish = mergePorts(m, l, "network.publish", n.Publish, p.Publish)
	p.Forward = mergePorts(m, l, "network.forward", n.Forward, p.Forward)
}

// mergePorts adds the entries of a list. If two listen on the same port, the one of the
// higher layer stays.
func mergePorts[P publishedPort | forwardedPort](m *merger, l layered, list string, entries []P, to []PortRule) []PortRule {
	for i, e := range entries {
		r := PortRule(e)
		o, ok := m.loosen(l, indexed(list, i), strings.Replace(list, ".", " ", 1)+" %s", r)
		if !ok {
			continue
		}
		r.Origin = o
		to = slices.DeleteFunc(to, func(other PortRule) bool { return r.Host != 0 && other.listener(list) == r.listener(list) })
		to = append(to, r)
	}
	return to
}

// finish completes a policy whose documents are all merged.
func (m *merger) finish() {
	if env := &m.policy.Env; env.Origin.IsZero() {
		env.Mode, env.Origin = EnvScrubbed, Origin{Layer: LayerBuiltin, Source: "built-in: default environment"}
	}
	m.policy.Network.dropUnused()
}

// dropUnused drops settings of lower layers that have no meaning in the final mode: the
// allowed hosts and the link in modes without rules for hosts, and the ports in mode host.
// Ports from the mode's own layer or a higher one stay, so that [Policy.Validate] reports
// them: their author expects them to work.
func (n *Network) dropUnused() {
	if n.Mode != NetworkUser {
		n.Allow, n.Link, n.LinkOrigin = nil, LinkAuto, Origin{}
	}
	if n.Mode == NetworkHost {
		lower := func(r PortRule) bool { return r.Origin.Layer < n.Origin.Layer }
		n.Publish, n.Forward = slices.DeleteFunc(n.Publish, lower), slices.DeleteFunc(n.Forward, lower)
	}
}
