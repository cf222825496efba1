package judge

// This file says which connections are inspected: TLS ends in cloche, which sees the requests
// inside. All other TLS stays end-to-end.

// noQUIC is why UDP is refused where TLS is inspected. QUIC, the TLS of HTTP/3, cannot be
// inspected, so the requests inside would not be judged; clients go on with TCP.
const noQUIC = "TLS to this host is inspected, and HTTP/3 over UDP cannot be: clients use TCP instead"

// Inspects reports whether TLS with a host at a port is inspected: the most exact entry that
// names it is a rule about requests inside TLS or a host of a secret, and not one with
// inspect: false. The host is a name or an address.
func (j *Network) Inspects(host string, port int) bool {
	if _, only := j.byMode(); only {
		return false
	}
	if addr, ok := literal(host); ok {
		return j.inspected(port, func(r *netRule) bool { return r.every || r.holds(addr) })
	}
	normal, ok := NormalName(host)
	return ok && j.inspectsName(normal, port)
}

// Lenient reports whether no rule is about methods or paths of a host's requests inside TLS.
// Then it does not matter how the server reads the requests.
func (j *Network) Lenient(host string, port int) bool {
	addr, isAddr := literal(host)
	normal, isName := NormalName(host)
	for _, list := range [][]netRule{j.allow, j.deny} {
		for i := range list {
			r := &list[i]
			if !r.https || len(r.Methods) == 0 && len(r.Paths) == 0 || !r.about("tcp", port) {
				continue
			}
			if isAddr && (r.every || r.holdsAny(addr)) || isName && (r.names(normal) || r.prefix.IsValid()) {
				return false
			}
		}
	}
	return isAddr || isName
}

func (j *Network) inspectsName(normal string, port int) bool {
	return j.inspected(port, func(r *netRule) bool { return r.names(normal) })
}

// inspected looks for the most exact entry that asks for a look inside TLS, or forbids it. Of
// two that are equally exact the latter wins: what a person exempts has clients that do not work
// otherwise.
func (j *Network) inspected(port int, matches func(*netRule) bool) bool {
	if !j.inspects {
		return false
	}
	asks, forbids := -1, -1
	for _, list := range [][]netRule{j.allow, j.deny, j.inspect} {
		for i := range list {
			r := &list[i]
			if !r.https && !r.EndToEnd || !r.about("tcp", port) || !matches(r) {
				continue
			}
			if r.EndToEnd {
				forbids = max(forbids, r.exactness())
			} else {
				asks = max(asks, r.exactness())
			}
		}
	}
	return asks > forbids
}

// inspectsPort reports whether TLS with any host at the port may be inspected.
func (j *Network) inspectsPort(port int) bool {
	return j.inspected(port, func(r *netRule) bool { return r.https })
}

// exactness orders rules by how few hosts they name: "*" first, whole names last.
func (r *netRule) exactness() int {
	const longerThanNames = 1000
	switch {
	case r.prefix.IsValid():
		return r.prefix.Bits()
	case r.name != "":
		return longerThanNames
	}
	return len(r.suffix)
}

// orNoQUIC refuses UDP to an inspected host that v allows.
func (j *Network) orNoQUIC(d Dest, v NetDecision) NetDecision {
	if !v.Inspect || d.Protocol == "tcp" {
		return v
	}
	if v.Inspect = false; d.Protocol == "udp" {
		return j.refused(noQUIC)
	}
	return v
}
