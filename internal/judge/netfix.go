package judge

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Denial is the record of a refusal, made of what was asked and what the judge said. A
// request has a method and a path. The protocol of one inside TLS is [policy.HTTPS].
func (v NetDecision) Denial(op plan.Op, to Dest, method, path string) plan.Denial {
	d := plan.Denial{Decision: v.Decision, Count: 1}
	d.Op, d.Addr, d.Port, d.Protocol, d.Method, d.Path = op, plainAddr(to.Addr), to.Port, to.Protocol, method, path
	if len(to.Names) > 0 {
		d.Host = to.Names[0]
	} else if to.Addr.IsValid() {
		d.Host = d.Addr.String()
	}
	Fixer{}.Fix(&d.Decision)
	return d
}

func isNetwork(d *plan.Decision) bool {
	return d.Op == plan.OpConnect && d.Rule != RuleSockets || d.Op == plan.OpResolve || d.Op == plan.OpRequest
}

// netEdits are the edits that would allow a use of the network. What a rule denies no
// edit allows: the rule has to go.
func netEdits(d *plan.Decision) []policy.Edit {
	if d.Rule == RuleNetworkDeny || d.Rule == RuleNetworkProtocol {
		return nil
	}
	if d.Rule == RuleNetworkPrivate && d.Addr.IsValid() && addrKind(d.Addr) == kindLoopback {
		if isNameOfLoopback(d) {
			return nil
		}
		return forwardEdit(d)
	}
	entry := allowEntry(d)
	if entry == "" {
		return nil
	}
	allow := policy.Edit{Field: "network.allow", Value: entry}
	if d.Rule == RuleNetworkMode && d.Origin.Layer == policy.LayerCommand {
		// Elsewhere a list of hosts implies the mode.
		return []policy.Edit{{Field: "network.mode", Value: policy.NetworkUser.String()}, allow}
	}
	return []policy.Edit{allow}
}

// isNameOfLoopback reports whether a name led to the host's loopback. Inside, a port that
// is forwarded is one of the sandbox's own loopback, to which no name of others leads.
func isNameOfLoopback(d *plan.Decision) bool {
	_, name := NormalName(d.Host)
	return name && d.Rule == RuleNetworkPrivate && addrKind(d.Addr) == kindLoopback && d.Host != "localhost" && !strings.HasSuffix(d.Host, ".localhost")
}

// allowEntry is the entry of network.allow that allows it, or empty.
func allowEntry(d *plan.Decision) string {
	host, scheme := d.Host, ""
	if d.Rule == RuleNetworkPrivate && d.Addr.IsValid() {
		own := strings.HasPrefix(d.Reason, kindOwn)
		if _, name := NormalName(d.Host); name && inside(d.Addr, own) && d.Op != plan.OpRequest {
			scheme = "private://"
		} else {
			host = d.Addr.String()
		}
	}
	switch {
	case !grantable(host), d.Rule == RuleNetworkMode && !isReachable(d, host):
		return ""
	case d.Op == plan.OpResolve:
		return scheme + host
	case d.Op == plan.OpRequest:
		return requestEntry(d, host)
	case d.Protocol == "icmp":
		return scheme + "icmp://" + host
	case d.Protocol == "udp":
		return scheme + "udp://" + show.HostPort(host, d.Port, 0)
	}
	return scheme + show.HostPort(host, d.Port, 0)
}

// isReachable reports whether an entry for the host would allow a connection that the
// network mode refused. A name server is not what a program is after, and which name it
// asks for is not known.
func isReachable(d *plan.Decision, host string) bool {
	if d.Op != plan.OpConnect || !d.Addr.IsValid() {
		return true
	}
	if addrKind(d.Addr) == kindMulticast || d.Port == dnsPort || d.Port == 0 && d.Protocol != "icmp" {
		return false
	}
	n := plan.Network{Mode: policy.NetworkUser, Allow: []plan.HostPort{{Host: host}}}
	return NewNetwork(&n).Connect(Dest{Protocol: d.Protocol, Addr: d.Addr, Port: d.Port}).Allowed
}

// forwardEdit opens one port of the host's loopback.
func forwardEdit(d *plan.Decision) []policy.Edit {
	if d.Port == 0 || d.Protocol == "icmp" {
		return nil
	}
	port := strconv.Itoa(d.Port)
	if d.Protocol == "udp" {
		port += "/udp"
	}
	return []policy.Edit{{Field: "network.forward", Value: port}}
}

// requestEntry allows one path of a host, for requests of HTTP.
func requestEntry(d *plan.Decision, host string) string {
	p := readPath(d.Path)
	if p.bad != "" || p.full != p.bare || strings.ContainsAny(p.full, "*%") || show.Visible(p.full) != p.full {
		return ""
	}
	if d.Protocol == policy.HTTPS {
		return "https://" + show.HostPort(host, d.Port, 443) + p.full
	}
	return "http://" + show.HostPort(host, d.Port, 80) + p.full
}

// grantable reports whether a host can be written in a rule and means that one
// alone: a client can ask for whatever it likes, "*" among it.
func grantable(host string) bool {
	if _, ok := NormalName(host); ok {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
