package judge

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A netRule is a rule, taken apart.
type netRule struct {
	plan.HostPort
	text   string       // the rule as a policy has it
	every  bool         // "*"
	suffix string       // of "*.name", with its dot
	name   string       // a name
	prefix netip.Prefix // an address or a CIDR
	http   bool         // it is about single requests of plain HTTP
	https  bool         // it is about single requests inside TLS
}

// single reports whether the rule is about single requests.
func (r *netRule) single() bool { return r.http || r.https }

func netRules(list []plan.HostPort) []netRule {
	rules := make([]netRule, len(list))
	for i, h := range list {
		r := netRule{HostPort: h, text: h.String(), https: h.Protocol == policy.HTTPS}
		r.http = !r.https && (len(h.Methods) > 0 || len(h.Paths) > 0)
		if r.https && slices.Equal(h.Paths, []string{"/**"}) {
			// Every path is allowed, so it does not matter how servers read one: npm asks for
			// /@scope%2fname.
			r.Paths = nil
		}
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
	if r.Protocol != "" && r.Protocol != protocol && !r.https || r.single() && protocol != "tcp" {
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

func (r *netRule) decision(rule string) NetDecision {
	return NetDecision{Decision: plan.Decision{Allowed: rule == RuleNetworkAllow, Rule: rule, Subject: r.text, Reason: r.Reason, Origin: r.Origin}}
}

// NormalName brings the name of a host into the one spelling in which rules
// compare it: lower case, without a trailing dot. ok is false for what is no name
// of a host: addresses, odd spellings of addresses ("127.1", "0x7f.1"), bytes
// that are not ASCII (names travel in their xn-- form), NUL, empty labels.
func NormalName(s string) (name string, ok bool) {
	name = strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if !nameByte(name[i]) {
				return "", false
			}
			continue
		}
		if n := i - start; n == 0 || n > 63 {
			return "", false
		}
		start = i + 1
	}
	name = strings.ToLower(name)
	return name, !numeric(name[strings.LastIndexByte(name, '.')+1:])
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// numeric reports whether a last label makes resolvers read the whole as an
// IPv4 address.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
