package plan

import (
	"net/netip"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// The rules that network verdicts name.
const (
	RuleNetworkMode    = "network.mode"    // the mode, before any list
	RuleNetworkAllow   = "network.allow"   // an entry of allow, or that there is none
	RuleNetworkDeny    = "network.deny"    // an entry of deny
	RuleNetworkPrivate = "network.private" // built in: addresses that no name leads to
)

// A Dest is where a client wants to go.
type Dest struct {
	// Protocol is tcp, udp or icmp.
	Protocol string
	// Names are those that the client asked for and that lead to Addr. There may
	// be none: then the client knows the address from elsewhere.
	Names []string
	// Addr is not valid where a proxy has not looked the name up yet. Then only
	// the name is judged, and the whole has to be judged again with the address.
	Addr netip.Addr
	Port int
	// Own: the address is one of the host's own.
	Own bool
}

// A NetVerdict is what a plan says of one use of the network, and why.
type NetVerdict struct {
	Allowed bool
	Verdict
	// HTTP: the connection has to be plain HTTP/1, each request of it judged by
	// NetJudge.Request. On a connection that is something else, TLS for instance,
	// it means refused.
	HTTP bool
	// ByAddress: a rule that is an address or a CIDR allows it. What name the
	// client gives to the server is then of no interest, unless it is denied.
	ByAddress bool
	// Name is the name that it is allowed by, if it is one.
	Name string
}

// A NetJudge answers what a plan says of the network. It looks at nothing but its
// arguments, never changes and is safe for concurrent use. It goes through the
// rules one by one: hundreds of them cost microseconds.
type NetJudge struct {
	mode        policy.NetworkMode
	origin      policy.Origin
	allow, deny []netRule
}

// Judge returns a judge for the network's rules, which must not change afterwards.
func (n *Network) Judge() *NetJudge {
	return &NetJudge{mode: n.Mode, origin: n.Origin, allow: netRules(n.Allow), deny: netRules(n.Deny)}
}

// byMode answers where the mode alone decides.
func (j *NetJudge) byMode() (NetVerdict, bool) {
	v := NetVerdict{Verdict: Verdict{Rule: RuleNetworkMode, Subject: j.mode.String(), Origin: j.origin}}
	v.Allowed = j.mode == policy.NetworkHost
	return v, j.mode != policy.NetworkUser
}

// refused is the verdict where no rule says anything.
func (j *NetJudge) refused(reason string) NetVerdict {
	return NetVerdict{Verdict: Verdict{Rule: RuleNetworkAllow, Reason: reason, Origin: j.origin}}
}

func private(addr netip.Addr, kind string) NetVerdict {
	reason := kind + ", which only a rule for that address opens"
	switch {
	case kind == kindLoopback:
		reason = kind + ", of which single ports can be forwarded"
	case inside(addr, kind == kindOwn):
		reason = kind + ", which only a rule for that address opens, or one for the name with private:// before it"
	}
	return NetVerdict{Verdict: Verdict{Rule: RuleNetworkPrivate, Subject: addr.String(), Reason: reason,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: addresses that are not public"}}}
}

const noRule = "no entry of the list allows it"

// Name says whether a name may be looked up at all: some rule could allow a
// connection by it. Asking others for a name tells them that name, so that a
// look-up that leads nowhere is only a way out.
func (j *NetJudge) Name(name string) NetVerdict {
	if v, ok := j.byMode(); ok {
		return v
	}
	normal, ok := NormalName(name)
	if !ok {
		return j.refused("it is no name of a host")
	}
	host := serviceHost(normal)
	for i := range j.deny {
		if r := &j.deny[i]; (r.names(normal) || r.names(host)) && r.Port == 0 && r.Protocol == "" && !r.http {
			return r.verdict(RuleNetworkDeny)
		}
	}
	for i := range j.allow {
		r := &j.allow[i]
		// Where every address is allowed, names tell nothing that could not be
		// told anyway.
		if r.names(normal) || r.names(host) || r.prefix.IsValid() && r.prefix.Bits() == 0 {
			v := r.verdict(RuleNetworkAllow)
			v.Name = normal
			return v
		}
	}
	return j.refused(noRule)
}

// serviceHost is the host that a service's name is about: "_http._tcp.a.example"
// asks where a.example serves HTTP. Its owner, and nobody else, is asked.
func serviceHost(normal string) string {
	for strings.HasPrefix(normal, "_") {
		_, rest, ok := strings.Cut(normal, ".")
		if !ok {
			return normal
		}
		normal = rest
	}
	return normal
}

// Answer says whether an address may be among the answers for a name that may be
// looked up: public ones, those that a rule for addresses allows, and private ones for a
// name whose rule says so. Others would let the owner of a name point at what is near to
// the host.
func (j *NetJudge) Answer(name string, addr netip.Addr, own bool) NetVerdict {
	if v, ok := j.byMode(); ok {
		return v
	}
	addr = plainAddr(addr)
	kind := destKind(addr, own)
	if kind == kindPublic {
		return NetVerdict{Allowed: true, Verdict: Verdict{Rule: RuleNetworkAllow, Origin: j.origin}}
	}
	for i := range j.allow {
		if r := &j.allow[i]; kind != kindLoopback && r.holds(addr) {
			v := r.verdict(RuleNetworkAllow)
			v.ByAddress = true
			return v
		}
	}
	normal, _ := NormalName(name)
	for i := range j.allow {
		if r := &j.allow[i]; normal != "" && r.names(normal) && r.leads(Dest{Addr: addr, Own: own}) {
			return r.verdict(RuleNetworkAllow)
		}
	}
	return private(addr, kind)
}

func destKind(addr netip.Addr, own bool) string {
	kind := addrKind(addr)
	if own && (kind == kindPublic || kind == kindPrivate || kind == kindShared) {
		return kindOwn
	}
	return kind
}

// Connect says whether a connection may be made, a datagram or a ping be sent.
func (j *NetJudge) Connect(d Dest) NetVerdict {
	if v, ok := j.byMode(); ok {
		return v
	}
	if !d.Addr.IsValid() {
		return j.connectByNames(d)
	}
	d.Addr = plainAddr(d.Addr)
	kind := destKind(d.Addr, d.Own)
	if kind == kindLoopback {
		return private(d.Addr, kind)
	}
	for i := range j.deny {
		if r := &j.deny[i]; !r.http && r.about(d.Protocol, d.Port) && (r.every || r.holdsAny(d.Addr)) {
			return r.verdict(RuleNetworkDeny)
		}
	}
	byAddress, found := j.connectByAddress(d)
	if found && !byAddress.HTTP || kind != kindPublic {
		switch {
		case !found:
			if v := j.connectByNames(d); len(d.Names) > 0 && (v.Allowed || v.Rule == RuleNetworkDeny) {
				return v
			}
			return private(d.Addr, kind)
		case len(d.Names) == 0:
			return byAddress
		}
		return j.unlessDenied(d, byAddress)
	}
	v := j.connectByNames(d)
	switch {
	case !found:
		return v
	case !v.Allowed && v.Rule != RuleNetworkDeny:
		return byAddress
	}
	v.HTTP, v.ByAddress = true, v.Allowed
	return v
}

// connectByAddress applies the rules that are addresses. A rule without methods
// and paths counts before one that has some.
func (j *NetJudge) connectByAddress(d Dest) (v NetVerdict, found bool) {
	for i := range j.allow {
		r := &j.allow[i]
		if !r.about(d.Protocol, d.Port) || !r.holds(d.Addr) || found && r.http {
			continue
		}
		v, found = r.verdict(RuleNetworkAllow), true
		v.ByAddress, v.HTTP = true, r.http
		if !r.http {
			break
		}
	}
	if found && !v.HTTP {
		v.HTTP = j.deniesRequests(d, func(*netRule) bool { return true })
	}
	return v, found
}

// unlessDenied refuses a destination all names of which are denied.
func (j *NetJudge) unlessDenied(d Dest, v NetVerdict) NetVerdict {
	var refusal NetVerdict
	for _, n := range d.Names {
		name, ok := NormalName(n)
		if !ok {
			continue
		}
		r := j.deniedName(d, name)
		if r == nil {
			return v
		}
		refusal = r.verdict(RuleNetworkDeny)
	}
	if refusal.Rule == "" {
		return v
	}
	return refusal
}

// connectByNames judges each name that leads to the destination: one that is
// allowed suffices, for whoever resolved it may use it.
func (j *NetJudge) connectByNames(d Dest) NetVerdict {
	if len(d.Names) == 0 {
		return j.connectUnnamed(d)
	}
	best := j.refused(noRule)
	for _, n := range d.Names {
		v := j.connectByName(d, n)
		switch {
		case v.Allowed && best.Allowed:
			// Whichever of the names is meant, what has to be judged is judged.
			best.HTTP = best.HTTP || v.HTTP
		case v.Allowed, !best.Allowed && v.Rule == RuleNetworkDeny:
			best = v
		case !best.Allowed && best.Rule != RuleNetworkDeny:
			best = v
		}
	}
	return best
}

// connectUnnamed judges a public address that no name led to.
func (j *NetJudge) connectUnnamed(d Dest) NetVerdict {
	if !d.Addr.IsValid() {
		return j.refused("neither a name nor an address is known")
	}
	return j.best(d, func(r *netRule) bool { return r.every })
}

func (j *NetJudge) connectByName(d Dest, name string) NetVerdict {
	normal, ok := NormalName(name)
	if !ok {
		return j.refused("it is no name of a host")
	}
	if r := j.deniedName(d, normal); r != nil {
		return r.verdict(RuleNetworkDeny)
	}
	v := j.best(d, func(r *netRule) bool { return r.names(normal) })
	if v.Allowed {
		v.Name = normal
	}
	return v
}

// deniedName is the rule that denies a name at the port of a destination.
func (j *NetJudge) deniedName(d Dest, normal string) *netRule {
	for i := range j.deny {
		if r := &j.deny[i]; !r.http && r.about(d.Protocol, d.Port) && r.names(normal) {
			return r
		}
	}
	return nil
}

// best is the verdict of the allowing rule that matches. One without methods and
// paths comes before one that has some; then requests are judged only if rules
// deny some of them.
func (j *NetJudge) best(d Dest, matches func(*netRule) bool) NetVerdict {
	v := j.refused(noRule)
	for i := range j.allow {
		r := &j.allow[i]
		if !r.about(d.Protocol, d.Port) || !matches(r) || !r.leads(d) {
			continue
		}
		if !r.http {
			v = r.verdict(RuleNetworkAllow)
			v.HTTP = j.deniesRequests(d, matches)
			return v
		}
		if !v.Allowed {
			v = r.verdict(RuleNetworkAllow)
			v.HTTP = true
		}
	}
	return v
}

// deniesRequests reports whether rules deny single requests to a destination.
func (j *NetJudge) deniesRequests(d Dest, matches func(*netRule) bool) bool {
	for i := range j.deny {
		r := &j.deny[i]
		if r.http && r.about(d.Protocol, d.Port) && (matches(r) || d.Addr.IsValid() && r.holdsAny(d.Addr)) {
			return true
		}
	}
	return false
}
