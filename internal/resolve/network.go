package resolve

import (
	"cmp"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// network adds the network rules to the plan. The link is chosen before, because files and
// variables depend on it.
func (b *builder) network() {
	n, to := b.policy.Network, &b.plan.Network
	to.Mode, to.Allow, to.Deny, to.Origin = n.Mode, hostPorts(n.Allow), hostPorts(n.Deny), n.Origin
	if n.Mode != policy.NetworkHost {
		to.Publish, to.Forward = ports(n.Publish), ports(n.Forward)
	}
	if n.Origin.IsZero() {
		to.Origin = builtin("no network")
	}
	b.inspectedHosts()
	if n.Mode == policy.NetworkUser && len(to.Allow) == 0 {
		b.notice(plan.NoticeInfo, "network: the mode is user, and no host is allowed; allow some with --allow HOST[:PORT]", to.Origin)
	}
}

func hostPorts(rules []policy.HostRule) []plan.HostPort {
	var out []plan.HostPort
	for _, r := range rules {
		out = append(out, plan.HostPort(r))
	}
	return out
}

func ports(rules []policy.PortRule) []plan.Port {
	var out []plan.Port
	for _, r := range rules {
		p := plan.Port(r)
		p.Address, p.Protocol = cmp.Or(p.Address, "127.0.0.1"), cmp.Or(p.Protocol, "tcp")
		out = append(out, p)
	}
	return out
}

// link chooses how packets leave: as the policy says, or else the best link that works here.
func (b *builder) link() {
	n, to := b.policy.Network, &b.plan.Network
	if n.Mode != policy.NetworkUser {
		return
	}
	to.Link, to.LinkOrigin = n.Link, n.LinkOrigin
	tun, veth := b.snap.Networking.TUN, b.snap.Networking.Veth
	switch n.Link {
	case policy.LinkAuto:
		to.Link, to.LinkReason = bestLink(tun, veth)
		to.LinkOrigin = builtin("the best link that works here")
	case policy.LinkTUN:
		b.needLink(tun)
	case policy.LinkVeth:
		b.needLink(veth)
	case policy.LinkProxy:
	}
}

// bestLink prefers a device, which carries the packets of every program. A proxy only works
// for programs that use it.
func bestLink(tun, veth host.Probe) (policy.Link, string) {
	switch {
	case tun.Outcome == host.Yes:
		return policy.LinkTUN, ""
	case veth.Outcome == host.Yes:
		return policy.LinkVeth, "no TUN device: " + cmp.Or(tun.Reason, "not tried")
	}
	return policy.LinkProxy, "no TUN device: " + cmp.Or(tun.Reason, "not tried") + "; no pair of virtual devices: " + cmp.Or(veth.Reason, "not tried")
}

// needLink fails if the policy names a link that cannot be made.
func (b *builder) needLink(p host.Probe) {
	if p.Outcome != host.No {
		return
	}
	n := b.policy.Network
	b.fail(&PolicyError{Rule: "network.link", Path: n.Link.String(), Reason: "cannot be made here: " + p.Reason, Origin: n.LinkOrigin,
		Fix: cmp.Or(p.Fix, "write link: auto, which takes the best one that works")})
}
