package judge

import (
	"net/netip"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The rules that decisions about the network name.
const (
	RuleNetworkMode    = "network.mode"    // the mode, before any list
	RuleNetworkAllow   = "network.allow"   // an entry of allow, or that there is none
	RuleNetworkDeny    = "network.deny"    // an entry of deny
	RuleNetworkPrivate = "network.private" // built in: addresses that no name leads to
	// RuleNetworkProtocol refuses what cannot be judged: malformed requests, hidden
	// names. It is built in, and no option lifts it.
	RuleNetworkProtocol = "network.protocol"
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

// A NetDecision is the decision about one use of the network, and what follows for the
// connection.
type NetDecision struct {
	plan.Decision
	// HTTP: only single requests are allowed, each judged by Network.Request in plain HTTP/1
	// or, with Inspect, by Network.RequestTLS inside TLS. On a connection that is something
	// else it means refused.
	HTTP bool
	// Inspect: if the connection is TLS, it has to end in cloche, and each request inside is
	// judged by Network.RequestTLS. For the name in a greeting, Network.Server says it again:
	// of several names that share an address some may be inspected and others not. Where TLS
	// cannot be inspected and HTTP is set, it means refused.
	Inspect bool
	// ByAddress: a rule that is an address or a CIDR allows it. What name the
	// client gives to the server is then of no interest, unless it is denied.
	ByAddress bool
	// Name is the name that it is allowed by, if it is one.
	Name string
}

// Network decides about uses of the network. It looks at nothing but its
// arguments, never changes and is safe for concurrent use. It goes through the
// rules one by one: hundreds of them cost microseconds.
type Network struct {
	mode        policy.NetworkMode
	origin      policy.Origin
	allow, deny []netRule
	// inspect are the hosts that are inspected for a secret. inspects: some rule or secret
	// asks for that.
	inspect  []netRule
	inspects bool
}

// NewNetwork returns a judge for the network's rules, which must not change afterwards.
func NewNetwork(n *plan.Network) *Network {
	return &Network{mode: n.Mode, origin: n.Origin, allow: netRules(n.Allow), deny: netRules(n.Deny), inspect: netRules(n.Inspect), inspects: n.NeedsInspection()}
}

// byMode answers where the mode alone decides.
func (j *Network) byMode() (NetDecision, bool) {
	v := NetDecision{Decision: plan.Decision{Allowed: j.mode == policy.NetworkHost, Rule: RuleNetworkMode, Subject: j.mode.String(), Origin: j.origin}}
	return v, j.mode != policy.NetworkUser
}

// refused is the decision where no rule says anything.
func (j *Network) refused(reason string) NetDecision {
	return NetDecision{Decision: plan.Decision{Rule: RuleNetworkAllow, Reason: reason, Origin: j.origin}}
}

func private(addr netip.Addr, kind string) NetDecision {
	reason := kind + ", which only a rule for that address opens"
	switch {
	case kind == kindLoopback:
		reason = kind + ", of which single ports can be forwarded"
	case inside(addr, kind == kindOwn):
		reason = kind + ", which only a rule for that address opens, or one for the name with private:// before it"
	}
	return NetDecision{Decision: plan.Decision{Rule: RuleNetworkPrivate, Subject: addr.String(), Reason: reason,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: addresses that are not public"}}}
}

const noRule = "no entry of the list allows it"

// Name says whether a name may be looked up at all: some rule could allow a
// connection by it. Asking others for a name tells them that name, so that a
// look-up that leads nowhere is only a way out.
func (j *Network) Name(name string) NetDecision {
	if v, ok := j.byMode(); ok {
		return v
	}
	normal, ok := NormalName(name)
	if !ok {
		return j.refused("it is no name of a host")
	}
	host := serviceHost(normal)
	for i := range j.deny {
		if r := &j.deny[i]; (r.names(normal) || r.names(host)) && r.Port == 0 && r.Protocol == "" && !r.single() {
			return r.decision(RuleNetworkDeny)
		}
	}
	for i := range j.allow {
		r := &j.allow[i]
		// Where every address is allowed, names tell nothing that could not be
		// told anyway.
		if r.names(normal) || r.names(host) || r.prefix.IsValid() && r.prefix.Bits() == 0 {
			v := r.decision(RuleNetworkAllow)
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
func (j *Network) Answer(name string, addr netip.Addr, own bool) NetDecision {
	if v, ok := j.byMode(); ok {
		return v
	}
	addr = plainAddr(addr)
	kind := destKind(addr, own)
	if kind == kindPublic {
		return NetDecision{Decision: plan.Decision{Allowed: true, Rule: RuleNetworkAllow, Origin: j.origin}}
	}
	for i := range j.allow {
		if r := &j.allow[i]; kind != kindLoopback && r.holds(addr) {
			v := r.decision(RuleNetworkAllow)
			v.ByAddress = true
			return v
		}
	}
	normal, _ := NormalName(name)
	for i := range j.allow {
		if r := &j.allow[i]; normal != "" && r.names(normal) && r.leads(Dest{Addr: addr, Own: own}) {
			return r.decision(RuleNetworkAllow)
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
func (j *Network) Connect(d Dest) NetDecision {
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
		if r := &j.deny[i]; !r.single() && r.about(d.Protocol, d.Port) && (r.every || r.holdsAny(d.Addr)) {
			return r.decision(RuleNetworkDeny)
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
	v.HTTP, v.ByAddress, v.Inspect = true, v.Allowed, v.Inspect || byAddress.Inspect
	return v
}

// connectByAddress applies the rules that are addresses. A rule without methods
// and paths counts before one that has some.
func (j *Network) connectByAddress(d Dest) (v NetDecision, found bool) {
	for i := range j.allow {
		r := &j.allow[i]
		if !r.about(d.Protocol, d.Port) || !r.holds(d.Addr) || found && r.single() {
			continue
		}
		v, found = r.decision(RuleNetworkAllow), true
		v.ByAddress, v.HTTP = true, r.single()
		if !r.single() {
			break
		}
	}
	if !found {
		return v, false
	}
	// A plain request names its host. Of requests inside TLS only the host in the greeting is
	// known before: see Server.
	v.HTTP = v.HTTP || j.deniesRequests(d, func(r *netRule) bool { return r.http || r.every })
	inspected := j.inspected(d.Port, func(r *netRule) bool { return r.every || r.holds(d.Addr) })
	if inspected && d.Protocol == "udp" {
		return j.refused(noQUIC), true
	}
	v.Inspect = inspected && d.Protocol == "tcp"
	return v, true
}

// unlessDenied refuses a destination all names of which are denied.
func (j *Network) unlessDenied(d Dest, v NetDecision) NetDecision {
	var refusal NetDecision
	for _, n := range d.Names {
		name, ok := NormalName(n)
		if !ok {
			continue
		}
		r := j.deniedName(d, name)
		if r == nil {
			return v
		}
		refusal = r.decision(RuleNetworkDeny)
	}
	if refusal.Rule == "" {
		return v
	}
	return refusal
}

// connectByNames judges each name that leads to the destination: one that is
// allowed suffices, for whoever resolved it may use it.
func (j *Network) connectByNames(d Dest) NetDecision {
	if len(d.Names) == 0 {
		return j.connectUnnamed(d)
	}
	best := j.refused(noRule)
	for _, n := range d.Names {
		v := j.connectByName(d, n)
		switch {
		case v.Allowed && best.Allowed:
			// Whichever of the names is meant, what has to be judged is judged.
			best.HTTP, best.Inspect = best.HTTP || v.HTTP, best.Inspect || v.Inspect
		case v.Allowed, !best.Allowed && v.Rule == RuleNetworkDeny:
			best = v
		case !best.Allowed && best.Rule != RuleNetworkDeny:
			best = v
		}
	}
	return best
}

// connectUnnamed judges a public address that no name led to.
func (j *Network) connectUnnamed(d Dest) NetDecision {
	if !d.Addr.IsValid() {
		return j.refused("neither a name nor an address is known")
	}
	return j.orNoQUIC(d, j.best(d, func(r *netRule) bool { return r.every }))
}

func (j *Network) connectByName(d Dest, name string) NetDecision {
	normal, ok := NormalName(name)
	if !ok {
		return j.refused("it is no name of a host")
	}
	if r := j.deniedName(d, normal); r != nil {
		return r.decision(RuleNetworkDeny)
	}
	v := j.best(d, func(r *netRule) bool { return r.names(normal) })
	if v.Allowed {
		v.Name = normal
	}
	return j.orNoQUIC(d, v)
}

// deniedName is the rule that denies a name at the port of a destination.
func (j *Network) deniedName(d Dest, normal string) *netRule {
	for i := range j.deny {
		if r := &j.deny[i]; !r.single() && r.about(d.Protocol, d.Port) && r.names(normal) {
			return r
		}
	}
	return nil
}

// best is the decision by the allowing rule that matches. One without methods and
// paths comes before one that has some; then requests are judged only if rules
// deny some of them.
func (j *Network) best(d Dest, matches func(*netRule) bool) NetDecision {
	v := j.refused(noRule)
	for i := range j.allow {
		r := &j.allow[i]
		if !r.about(d.Protocol, d.Port) || !matches(r) || !r.leads(d) {
			continue
		}
		if !r.single() {
			v = r.decision(RuleNetworkAllow)
			v.HTTP = j.deniesRequests(d, matches)
			break
		}
		if !v.Allowed {
			v = r.decision(RuleNetworkAllow)
			v.HTTP = true
		}
	}
	v.Inspect = v.Allowed && j.inspected(d.Port, matches)
	return v
}

// deniesRequests reports whether rules deny single requests to a destination.
func (j *Network) deniesRequests(d Dest, matches func(*netRule) bool) bool {
	for i := range j.deny {
		r := &j.deny[i]
		if r.single() && r.about(d.Protocol, d.Port) && (matches(r) || d.Addr.IsValid() && r.holdsAny(d.Addr)) {
			return true
		}
	}
	return false
}

// AnyServer reports whether every name that a client could give to the server is
// allowed on a connection that Connect allowed, so that it need not be known.
func (j *Network) AnyServer(d Dest) bool {
	v := j.Connect(d)
	if !v.Allowed || v.HTTP || v.Inspect || j.inspectsPort(d.Port) {
		return false
	}
	for i := range j.deny {
		if r := &j.deny[i]; !r.prefix.IsValid() && r.about(d.Protocol, d.Port) {
			return false
		}
	}
	if v.ByAddress || v.Rule == RuleNetworkMode {
		return true
	}
	for i := range j.allow {
		if r := &j.allow[i]; r.every && !r.single() && r.about(d.Protocol, d.Port) && r.leads(d) {
			return true
		}
	}
	return false
}
