package plan

import (
	"net/netip"
	"strconv"
	"strings"
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

// netGrant is the option that would allow a use of the network. What a rule
// denies no option allows: the rule has to go.
func (d *Denial) netGrant() string {
	if d.Rule == RuleNetworkDeny || d.Rule == RuleNetworkProtocol {
		return ""
	}
	host := d.Host
	if d.Rule == RuleNetworkPrivate && d.Addr.IsValid() {
		if addrKind(d.Addr) == kindLoopback {
			return d.forwardGrant()
		}
		if _, name := NormalName(d.Host); name && inside(d.Addr, false) && d.Op != OpRequest {
			return strings.Replace(d.allowGrant(host), "--allow ", "--allow private://", 1)
		}
		host = d.Addr.String()
	}
	if !grantable(host) {
		return ""
	}
	if d.Rule == RuleNetworkMode && d.Op == OpConnect && d.Addr.IsValid() {
		return d.modeGrant(host)
	}
	return d.allowGrant(host)
}

// allowGrant lets a host be used with a network that judges hosts.
func (d *Denial) allowGrant(host string) string {
	switch {
	case d.Op == OpResolve:
		return "--allow " + host
	case d.Op == OpRequest:
		return d.requestGrant(host)
	case d.Protocol == "icmp":
		return "--allow icmp://" + host
	case d.Protocol == "udp":
		return "--allow udp://" + hostPort(host, d.Port, 0)
	}
	return "--allow " + hostPort(host, d.Port, 0)
}

// forwardGrant opens one port of the host's loopback.
func (d *Denial) forwardGrant() string {
	switch {
	case d.Port == 0 || d.Protocol == "icmp":
		return ""
	case d.Protocol == "udp":
		return "--forward " + strconv.Itoa(d.Port) + "/udp"
	}
	return "--forward " + strconv.Itoa(d.Port)
}

func (d *Denial) requestGrant(host string) string {
	p := readPath(d.Path)
	if p.bad != "" || p.full != p.bare || strings.ContainsAny(p.full, "*%") || Visible(p.full) != p.full {
		return ""
	}
	return "--allow " + shellWord("http://"+hostPort(host, d.Port, 80)+p.full)
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
