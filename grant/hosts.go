package grant

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// hostWithin reports whether the rule outer matches everything that the rule inner matches.
// Both are in the form of policy.ParseHost.
func hostWithin(outer, inner string) bool {
	o, err := policy.ParseHost(outer)
	if err != nil {
		return false
	}
	i, err := policy.ParseHost(inner)
	if err != nil {
		return false
	}
	return namesWithin(o.Host, i.Host) && portsWithin(o, i) &&
		(o.Protocol == "" || o.Protocol == i.Protocol) && (o.Private || !i.Private) &&
		partsWithin(o.Methods, i.Methods) && partsWithin(o.Paths, i.Paths)
}

// namesWithin reports whether outer contains inner. "*" is every public host. It contains only
// names here, because this function does not check whether an address is public.
func namesWithin(outer, inner string) bool {
	switch {
	case outer == inner:
		return true
	case outer == "*":
		_, isPrefix := prefixOf(inner)
		return !isPrefix
	case strings.HasPrefix(outer, "*."):
		_, isPrefix := prefixOf(inner)
		return !isPrefix && inner != "*" && strings.HasSuffix(inner, outer[1:])
	}
	o, ok := prefixOf(outer)
	if !ok {
		return false
	}
	i, ok := prefixOf(inner)
	return ok && o.Bits() <= i.Bits() && o.Contains(i.Addr())
}

// prefixOf parses an address or a CIDR.
func prefixOf(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

func portsWithin(outer, inner policy.HostRule) bool {
	if outer.Port == 0 {
		return true
	}
	return inner.Port != 0 && outer.Port <= inner.Port && max(inner.Port, inner.LastPort) <= max(outer.Port, outer.LastPort)
}

// partsWithin compares methods or paths. An empty list means all of them. Patterns are
// compared as text.
func partsWithin(outer, inner []string) bool {
	if len(outer) == 0 {
		return true
	}
	return len(inner) > 0 && !slices.ContainsFunc(inner, func(s string) bool { return !slices.Contains(outer, s) })
}
