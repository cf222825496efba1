package plan

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// Denial is the record of a refusal, made of what was asked and what the judge
// said. Requests add their method and path.
func (v NetVerdict) Denial(op Op, d Dest) Denial {
	n := Denial{Op: op, Addr: plainAddr(d.Addr), Port: d.Port, Protocol: d.Protocol, Verdict: v.Verdict, Count: 1}
	if len(d.Names) > 0 {
		n.Host = d.Names[0]
	} else if d.Addr.IsValid() {
		n.Host = n.Addr.String()
	}
	return n
}

func (d *Denial) network() bool {
	return d.Op == OpConnect && d.Rule != RuleSockets || d.Op == OpResolve || d.Op == OpRequest
}

// Object is what the operation was about.
func (d *Denial) Object() string {
	if d.Rule == RuleSockets {
		return d.Path
	}
	switch d.Op {
	case OpResolve:
		return d.Host
	case OpRequest:
		return d.Method + " http://" + hostPort(d.Host, d.Port, 80) + d.Path
	case OpConnect:
		s := hostPort(d.Host, d.Port, 0)
		if d.Protocol != "" && d.Protocol != "tcp" {
			s = d.Protocol + "://" + s
		}
		if d.Addr.IsValid() && d.Addr.String() != d.Host {
			s += " (" + d.Addr.String() + ")"
		}
		return s
	}
	return d.Path
}

// hostPort joins a host and a port, which is left out if it is the usual one.
func hostPort(host string, port, usual int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == usual {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}

// netEdits are the edits that would allow a use of the network. What a rule denies no
// edit allows: the rule has to go.
func (d *Denial) netEdits() []policy.Edit {
	if d.Rule == RuleNetworkDeny || d.Rule == RuleNetworkProtocol {
		return nil
	}
	if d.Rule == RuleNetworkPrivate && d.Addr.IsValid() && addrKind(d.Addr) == kindLoopback {
		if d.nameOfLoopback() {
			return nil
		}
		return d.forwardEdit()
	}
	entry := d.allowEntry()
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

// nameOfLoopback reports whether a name led to the host's loopback. Inside, a port that
// is forwarded is one of the sandbox's own loopback, to which no name of others leads.
func (d *Denial) nameOfLoopback() bool {
	_, name := NormalName(d.Host)
	return name && d.Rule == RuleNetworkPrivate && addrKind(d.Addr) == kindLoopback && d.Host != "localhost" && !strings.HasSuffix(d.Host, ".localhost")
}

// allowEntry is the entry of network.allow that allows it, or empty.
func (d *Denial) allowEntry() string {
	host, scheme := d.Host, ""
	if d.Rule == RuleNetworkPrivate && d.Addr.IsValid() {
		own := strings.HasPrefix(d.Reason, kindOwn)
		if _, name := NormalName(d.Host); name && inside(d.Addr, own) && d.Op != OpRequest {
			scheme = "private://"
		} else {
			host = d.Addr.String()
		}
	}
	switch {
	case !grantable(host), d.Rule == RuleNetworkMode && !d.reachable(host):
		return ""
	case d.Op == OpResolve:
		return scheme + host
	case d.Op == OpRequest:
		return d.requestEntry(host)
	case d.Protocol == "icmp":
		return scheme + "icmp://" + host
	case d.Protocol == "udp":
		return scheme + "udp://" + hostPort(host, d.Port, 0)
	}
	return scheme + hostPort(host, d.Port, 0)
}

// reachable reports whether an entry for the host would allow a connection that the
// network mode refused. A name server is not what a program is after, and which name it
// asks for is not known.
func (d *Denial) reachable(host string) bool {
	if d.Op != OpConnect || !d.Addr.IsValid() {
		return true
	}
	if addrKind(d.Addr) == kindMulticast || d.Port == dnsPort || d.Port == 0 && d.Protocol != "icmp" {
		return false
	}
	n := Network{Mode: policy.NetworkUser, Allow: []HostPort{{Host: host}}}
	return n.Judge().Connect(Dest{Protocol: d.Protocol, Addr: d.Addr, Port: d.Port}).Allowed
}

// forwardEdit opens one port of the host's loopback.
func (d *Denial) forwardEdit() []policy.Edit {
	if d.Port == 0 || d.Protocol == "icmp" {
		return nil
	}
	port := strconv.Itoa(d.Port)
	if d.Protocol == "udp" {
		port += "/udp"
	}
	return []policy.Edit{{Field: "network.forward", Value: port}}
}

// requestEntry allows one path of a host, for requests of plain HTTP.
func (d *Denial) requestEntry(host string) string {
	p := readPath(d.Path)
	if p.bad != "" || p.full != p.bare || strings.ContainsAny(p.full, "*%") || Visible(p.full) != p.full {
		return ""
	}
	return "http://" + hostPort(host, d.Port, 80) + p.full
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
