package plan

import (
	"net/netip"
	"strings"
)

// A netRule is a rule, taken apart.
type netRule struct {
	HostPort
	text   string       // the rule as a policy has it
	every  bool         // "*"
	suffix string       // of "*.name", with its dot
	name   string       // a name
	prefix netip.Prefix // an address or a CIDR
	http   bool         // it has methods or paths
}

func netRules(list []HostPort) []netRule {
	rules := make([]netRule, len(list))
	for i, h := range list {
		r := netRule{HostPort: h, text: h.String(), http: len(h.Methods) > 0 || len(h.Paths) > 0}
		host := strings.ToLower(strings.TrimSuffix(h.Host, "."))
		if addr, err := netip.ParseAddr(host); err == nil {
			addr = plainAddr(addr)
			r.prefix = netip.PrefixFrom(addr, addr.BitLen())
		} else if p, err := netip.ParsePrefix(host); err == nil {
			r.prefix = plainPrefix(p)
		} else if host == "*" {
			r.every = true
		} else if rest, ok := strings.CutPrefix(host, "*."); ok {
			r.suffix = "." + rest
		} else {
			r.name = host
		}
		rules[i] = r
	}
	return rules
}

// plainPrefix is a CIDR in the one form in which addresses are compared.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

// about reports whether the rule is about a protocol and a port.
func (r *netRule) about(protocol string, port int) bool {
	if r.Protocol != "" && r.Protocol != protocol || r.http && protocol != "tcp" {
		return false
	}
	if r.Port == 0 {
		return true
	}
	return protocol != "icmp" && port >= r.Port && port <= max(r.Port, r.LastPort)
}

// names reports whether the rule is about a normal name.
func (r *netRule) names(name string) bool {
	switch {
	case r.every:
		return true
	case r.suffix != "":
		return len(name) > len(r.suffix) && strings.HasSuffix(name, r.suffix)
	}
	return r.name != "" && r.name == name
}

// leads reports whether the rule, being one for names, is about the address of a
// destination: a public one, or a private one where the rule says so. An address that is
// not known is judged later.
func (r *netRule) leads(d Dest) bool {
	return !d.Addr.IsValid() || destKind(d.Addr, d.Own) == kindPublic || r.Private && (r.name != "" || r.suffix != "") && inside(d.Addr, d.Own)
}

// inside reports whether an address is one of a network such as a company's, in the
// plain form and not the host's own.
func inside(addr netip.Addr, own bool) bool {
	_, disguised := embedded(plainAddr(addr))
	kind := addrKind(addr)
	return !own && !disguised && (kind == kindPrivate || kind == kindShared)
}

// holds reports whether the rule is about an address, by the address itself.
func (r *netRule) holds(addr netip.Addr) bool { return r.prefix.IsValid() && r.prefix.Contains(addr) }

// holdsAny is holds for rules that deny: one for an address of IPv4 holds for the
// forms of IPv6 that stand for it.
func (r *netRule) holdsAny(addr netip.Addr) bool {
	inner, ok := embedded(addr)
	return r.holds(addr) || ok && r.holds(inner)
}

func (r *netRule) verdict(rule string) NetVerdict {
	return NetVerdict{Allowed: rule == RuleNetworkAllow, Verdict: Verdict{Rule: rule, Subject: r.text, Reason: r.Reason, Origin: r.Origin}}
}
