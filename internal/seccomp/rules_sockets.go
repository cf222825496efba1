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
func socketRules(o Options) []Rule {
	list := []Rule{familyRule(o, "socket"), familyRule(o, "socketpair")}
	if o.DenyUnix {
		// A pair that does not stay connected. (SOCK_RAW is a datagram too.)
		list = append(list, deny("datagram pairs", "one end of a datagram pair can send to any socket of the host", EAFNOSUPPORT, "socketpair").
			where(oneOf(0, familyUnix), noneOf(1, typeStream, typeSeqpacket).masked(typeMask)))
	}
	if !o.DenyInet {
		list = append(list, inetRules()...)
	}
	// getifaddrs and getaddrinfo need NETLINK_ROUTE. ss and audit libraries
	// know this error and do without.
	return append(list, deny("netlink protocols", "packet filters, audit and diagnostics of the kernel are the way to most recent local roots",
		EPROTONOSUPPORT, "socket").where(oneOf(0, familyNetlink), noneOf(2, netlinkRoute)))
}

// familyRule denies the address families that o does not leave open. AF_VSOCK,
// AF_BLUETOOTH and AF_ALG among them are the same inside and outside of a
// network namespace.
func familyRule(o Options, call string) Rule {
	families := []uint32{familyNetlink}
	// socketpair of AF_UNIX stays under DenyUnix, if it is connected.
	if !o.DenyUnix || call == "socketpair" {
		families = append(families, familyUnix)
	}
	if !o.DenyInet {
		families = append(families, familyInet, familyInet6)
	}
	return deny("address families", "rare families load old kernel modules, and several reach the host past the network namespace",
		EAFNOSUPPORT, call).where(noneOf(0, families...))
}

// inetRules keep internet sockets to TCP, UDP and ICMP.
func inetRules() []Rule {
	inet := oneOf(0, familyInet, familyInet6)
	return []Rule{
		// SOCK_DCCP loads its module even with protocol 0, and SOCK_PACKET
		// turns AF_INET into AF_PACKET.
		deny("socket types", "DCCP, SCTP and packet sockets are rarely used and often attacked", ESOCKTNOSUPPORT, "socket").
			where(inet, noneOf(1, typeStream, typeDgram, typeRaw).masked(typeMask)),
		// MPTCP is here because Landlock's TCP rules do not see it. Programs
		// that prefer it fall back to TCP on this error.
		deny("internet protocols", "MPTCP, SCTP, SMC and L2TP pass rules that were written for TCP and UDP", EPROTONOSUPPORT, "socket").
			where(inet, noneOf(2, protoDefault, protoICMP, protoTCP, protoUDP, protoICMPv6)),
	}
}
