package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// This file checks and merges the network part of documents and policies.

func (c *checker) network() {
	n := c.doc.Network
	if n == nil {
		return
	}
	for i := range n.Allow {
		c.host(indexed("network.allow", i), &n.Allow[i])
		c.fail(indexed("network.allow", i), unreachable(n.Allow[i]))
	}
	for i := range n.Deny {
		c.host(indexed("network.deny", i), &n.Deny[i])
		if n.Deny[i].Private {
			c.fail(indexed("network.deny", i), privateDenied(n.Deny[i]))
		}
	}
	c.ports("network.publish", n.Publish, ParsePublish)
	c.ports("network.forward", n.Forward, ParseForward)
	if n.Mode != nil && *n.Mode != NetworkUser {
		c.otherMode(n)
	}
}

// otherMode reports what has no meaning in the modes that judge no hosts.
func (c *checker) otherMode(n *NetworkSection) {
	at := c.lineOf("network.mode")
	if len(n.Allow) > 0 {
		c.failf("network.allow", "write mode: user, or remove the list", "a list of allowed hosts has no meaning with mode %s%s", n.Mode, at)
	}
	if n.Link != nil && *n.Link != LinkAuto {
		c.failf("network.link", "write mode: user, or remove the link", "the mode %s%s has no link", n.Mode, at)
	}
	if *n.Mode != NetworkHost {
		return
	}
	if len(n.Deny) > 0 {
		c.failf("network.deny", "write mode: user, or remove the list", "hosts cannot be denied with mode host%s, which shares the host's network unjudged", at)
	}
	for _, list := range []struct {
		name    string
		entries []PortEntry
	}{{"network.publish", n.Publish}, {"network.forward", n.Forward}} {
		if len(list.entries) > 0 {
			c.failf(list.name, "remove the list, or write another mode", "with mode host%s every port is the host's own", at)
		}
	}
}

// host checks an entry that may have been built in Go.
func (c *checker) host(field string, e *HostEntry) {
	err := hostOnly(e.Host, "write host: %s and port: %s")
	if err == nil {
		err = e.settle(e.Host)
	}
	c.fail(field, err)
}

// hostOnly reports a host that holds more than a host. The fix is for a host and
// its port.
func hostOnly(host, fix string) error {
	if strings.Contains(host, "://") {
		return faultf("write the host alone, and its protocol, port and paths apart", "%q holds a scheme", host)
	}
	bare, port, err := splitPort(host, host)
	if err == nil && !port.IsZero() {
		return faultf(fmt.Sprintf(fix, bare, port), "%q holds a port", host)
	}
	return nil
}

// Openable reports why no rule for hosts can open what the entry names, such as the
// host's loopback; nil if one can.
func (e HostEntry) Openable() error { return unreachable(e) }

// unreachable reports an allowed host that no rule can open.
func unreachable(e HostEntry) error {
	if e.Host != "localhost" && !strings.HasSuffix(e.Host, ".localhost") && !loopbackOnly(e.Host) {
		return nil
	}
	port := e.Port.String()
	if port == "" || e.Port.Last != 0 {
		port = "PORT"
	}
	return faultf("forward its ports one by one: forward: ["+port+"], or --forward "+port,
		"%q is the host's loopback, which no rule for hosts opens", e.Host)
}

// privateDenied reports a rule that denies a name with private, which means nothing
// there: what is denied is denied wherever it leads.
func privateDenied(e HostEntry) error {
	return faultf("leave private out", "%q is denied, whatever addresses it leads to", e.Host)
}

// loopbackOnly reports an address or CIDR that holds nothing but the loopback.
func loopbackOnly(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback() || addr.IsUnspecified()
	}
	prefix, err := netip.ParsePrefix(host)
	return err == nil && prefix.Addr().IsLoopback() && prefix.Bits() >= 8
}

func (c *checker) ports(list string, entries []PortEntry, parse func(string) (PortEntry, error)) {
	for i := range entries {
		settled, err := parse(entries[i].String())
		if err != nil {
			c.fail(indexed(list, i), err)
			continue
		}
		entries[i] = settled
	}
	c.portsTwice(list, entries)
}

// A listener is where a published or forwarded port is waited for.
type listener struct {
	address  string
	port     int
	protocol Protocol
}

func (e PortEntry) listener(list string) listener {
	if list == "network.forward" {
		return listener{port: e.Inside, protocol: e.Protocol}
	}
	return listener{cmp.Or(e.Address, "127.0.0.1"), e.Host, e.Protocol}
}

// portsTwice reports ports that two entries of a list lay claim to.
func (c *checker) portsTwice(list string, entries []PortEntry) {
	first := map[listener]int{}
	for i, e := range entries {
		at := e.listener(list)
		j, twice := first[at]
		switch {
		case at.port == 0:
		case !twice:
			first[at] = i
		case entries[j].String() != e.String():
			c.failf(indexed(list, i), "keep one of them", "%s and %s listen on the same port", entries[j], e)
		}
	}
}

func (m *merger) network(l Layered) {
	n, p := l.Doc.Network, &m.policy.Network
	if n == nil {
		return
	}
	mode, field := n.Mode, "network.mode"
	opener := l.Layer == LayerTool && p.Mode == NetworkHost // its hosts are open already
	if mode == nil && len(n.Allow) > 0 && !l.Untrusted && !opener {
		implied := NetworkUser
		mode, field = &implied, "network.allow"
	}
	mergeEnum(m, l, field, mode, &p.Mode, &p.Origin)
	if n.Link != nil {
		if o, ok := m.loosen(l, "network.link", "network.link: %s", n.Link); ok {
			p.Link, p.LinkOrigin = *n.Link, o
		}
	}
	for i, h := range n.Allow {
		if o, ok := m.loosen(l, indexed("network.allow", i), "network allow %s", h); ok {
			p.Allow = append(p.Allow, h.rule(o))
		}
	}
	for i, h := range n.Deny {
		p.Deny = append(p.Deny, h.rule(l.origin(indexed("network.deny", i))))
	}
	p.Publish = m.ports(l, "network.publish", n.Publish, p.Publish)
	p.Forward = m.ports(l, "network.forward", n.Forward, p.Forward)
}

// ports adds the entries of a list. Of two that listen on the same port the one of
// the higher layer stays.
func (m *merger) ports(l Layered, list string, entries []PortEntry, to []PortRule) []PortRule {
	for i, e := range entries {
		o, ok := m.loosen(l, indexed(list, i), strings.Replace(list, ".", " ", 1)+" %s", e)
		if !ok {
			continue
		}
		to = slices.DeleteFunc(to, func(r PortRule) bool { return e.Host != 0 && r.entry().listener(list) == e.listener(list) })
		to = append(to, e.rule(o))
	}
	return to
}

// finish drops what a higher layer left without a meaning: the allowed hosts and
// the link where nothing is judged by host, and the ports where all are the
// host's. Ports of the mode's own layer or of a higher one stay, for
// [Policy.Validate] to report: somebody waits for them.
func (m *merger) finish() {
	if m.policy.Env.Origin.IsZero() {
		m.policy.Env.Mode = EnvScrubbed
		m.policy.Env.Origin = Origin{Layer: LayerBuiltin, Source: "built-in: default environment"}
	}
	n := &m.policy.Network
	n.drop(func(r PortRule) bool { return r.Origin.Layer < n.Origin.Layer })
}

func (n *Network) drop(port func(PortRule) bool) {
	if n.Mode != NetworkUser {
		n.Allow, n.Link, n.LinkOrigin = nil, LinkAuto, Origin{}
	}
	if n.Mode == NetworkHost {
		n.Publish, n.Forward = slices.DeleteFunc(n.Publish, port), slices.DeleteFunc(n.Forward, port)
	}
}

func (v *validator) network(p Policy) {
	n := p.Network
	v.hosts("Network.Allow", n.Allow, true)
	v.hosts("Network.Deny", n.Deny, false)
	v.ports("Network.Publish", n.Publish, ParsePublish)
	v.ports("Network.Forward", n.Forward, ParseForward)
	if len(n.Allow) > 0 && n.Mode != NetworkUser {
		v.fail("Network.Allow", n.Allow[0].Origin, faultf("set the mode to user, or remove the list",
			"a list of allowed hosts has no meaning with mode %s", n.Mode))
	}
	if len(n.Deny) > 0 && n.Mode == NetworkHost && p.Require == Strict {
		v.fail("Network.Deny", n.Deny[0].Origin, faultf("set the mode to user, or require best-effort",
			"hosts cannot be denied with mode host, which shares the host's network unjudged"))
	}
	if ports := slices.Concat(n.Publish, n.Forward); len(ports) > 0 && n.Mode == NetworkHost {
		v.fail("Network", ports[0].Origin, faultf("remove Publish and Forward, or set another mode", "with mode host every port is the host's own"))
	}
}

func (v *validator) hosts(field string, rules []HostRule, allow bool) {
	for i, r := range rules {
		at := fmt.Sprintf("%s[%d]", field, i)
		if r.Port < 0 || r.Port > 65535 {
			v.fail(at+".Port", r.Origin, faultf("use a port from 1 to 65535, or 0 for every port", "%d is not a port", r.Port))
			continue
		}
		if r.LastPort != 0 && (r.LastPort < max(r.Port, 1) || r.LastPort > 65535) {
			v.fail(at+".LastPort", r.Origin, faultf("use a port from Port to 65535, or 0 for Port alone", "%d does not end a range", r.LastPort))
			continue
		}
		e := r.Entry()
		err := hostOnly(e.Host, "set Host to %s and Port to %s")
		if err == nil {
			err = e.settle(e.Host)
		}
		if err == nil && allow {
			err = unreachable(e)
		} else if err == nil && e.Private {
			err = privateDenied(e)
		}
		v.fail(at+".Host", r.Origin, err)
	}
}

func (v *validator) ports(field string, rules []PortRule, parse func(string) (PortEntry, error)) {
	for i, r := range rules {
		text := r.String()
		if r.Host < 0 {
			text = r.Address // what could not be read
		}
		_, err := parse(text)
		v.fail(field+"["+strconv.Itoa(i)+"]", r.Origin, err)
	}
}

func (e PortEntry) rule(o Origin) PortRule {
	return PortRule{Address: e.Address, Host: e.Host, Inside: e.Inside, Protocol: e.Protocol, Origin: o}
}

func (r PortRule) entry() PortEntry {
	return PortEntry{Address: r.Address, Host: r.Host, Inside: r.Inside, Protocol: r.Protocol}
}

// String returns the rule in the form of a file.
func (r PortRule) String() string { return r.entry().String() }
