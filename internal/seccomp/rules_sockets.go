package seccomp

// Families, types and protocols of socket(2).
const (
	familyUnix    = 1
	familyInet    = 2
	familyInet6   = 10
	familyNetlink = 16

	typeMask      = 0xf // SOCK_TYPE_MASK; the bits above are flags
	typeStream    = 1
	typeDgram     = 2
	typeRaw       = 3
	typeSeqpacket = 5

	protoDefault = 0
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMPv6  = 58

	netlinkRoute = 0
)

// socketRules deny the families, types and protocols that programs do not
// need: a socket loads the kernel module behind it, whoever asks, and several
// families are in no network namespace.
func socketRules(o Options) []rule {
	list := []rule{familyRule(o, "socket"), familyRule(o, "socketpair")}
	if o.DenyUnix {
		list = append(list, pairRule())
	}
	if !o.DenyInet {
		list = append(list, inetRules()...)
	}
	return append(list, rule{
		// getifaddrs and getaddrinfo need NETLINK_ROUTE. ss and audit libraries
		// know this error and do without.
		name: "netlink protocols", calls: []string{"socket"}, errno: EPROTONOSUPPORT,
		terms:  []term{oneOf(0, familyNetlink), noneOf(2, netlinkRoute)},
		when:   "of AF_NETLINK other than NETLINK_ROUTE",
		reason: "packet filters, audit and diagnostics of the kernel are the way to most recent local roots",
	})
}

// familyRule denies the address families that o does not leave open. AF_VSOCK,
// AF_BLUETOOTH and AF_ALG among them are the same inside and outside of a
// network namespace.
func familyRule(o Options, call string) rule {
	families := []uint32{familyNetlink}
	// socketpair of AF_UNIX stays under DenyUnix, within [pairRule].
	if !o.DenyUnix || call == "socketpair" {
		families = append(families, familyUnix)
	}
	if !o.DenyInet {
		families = append(families, familyInet, familyInet6)
	}
	return rule{
		name: "address families", calls: []string{call}, errno: EAFNOSUPPORT,
		terms: []term{noneOf(0, families...)}, when: "of a family other than " + familyNames(families),
		reason: "rare families load old kernel modules, and several reach the host past the network namespace",
	}
}

// familyNames returns the families in words.
func familyNames(families []uint32) string {
	text := ""
	for i, f := range families {
		switch {
		case i > 0 && i == len(families)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		switch f {
		case familyUnix:
			text += "AF_UNIX"
		case familyInet:
			text += "AF_INET"
		case familyInet6:
			text += "AF_INET6"
		case familyNetlink:
			text += "AF_NETLINK"
		}
	}
	return text
}

// pairRule denies pairs of unix sockets that do not stay connected: one end of
// a datagram pair sends to any path with sendto. (SOCK_RAW is a datagram too.)
func pairRule() rule {
	return rule{
		name: "datagram pairs", calls: []string{"socketpair"}, errno: EAFNOSUPPORT,
		terms:  []term{oneOf(0, familyUnix), noneOf(1, typeStream, typeSeqpacket).masked(typeMask)},
		when:   "of AF_UNIX other than SOCK_STREAM and SOCK_SEQPACKET",
		reason: "one end of a datagram pair can send to any socket of the host",
	}
}

// inetRules keep internet sockets to TCP, UDP and ICMP.
func inetRules() []rule {
	inet := oneOf(0, familyInet, familyInet6)
	return []rule{
		{
			// SOCK_DCCP loads its module even with protocol 0, and SOCK_PACKET
			// turns AF_INET into AF_PACKET.
			name: "socket types", calls: []string{"socket"}, errno: ESOCKTNOSUPPORT,
			terms:  []term{inet, noneOf(1, typeStream, typeDgram, typeRaw).masked(typeMask)},
			when:   "of an internet family other than stream, datagram and raw",
			reason: "DCCP, SCTP and packet sockets are rarely used and often attacked",
		},
		{
			// MPTCP is here because Landlock's TCP rules do not see it. Programs
			// that prefer it fall back to TCP on this error.
			name: "internet protocols", calls: []string{"socket"}, errno: EPROTONOSUPPORT,
			terms:  []term{inet, noneOf(2, protoDefault, protoICMP, protoTCP, protoUDP, protoICMPv6)},
			when:   "of an internet family other than TCP, UDP and ICMP",
			reason: "MPTCP, SCTP, SMC and L2TP pass rules that were written for TCP and UDP",
		},
	}
}
