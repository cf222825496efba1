package judge

import "net/netip"

// The kinds of address that are not public. A rule for names never leads there.
const (
	kindPublic    = ""
	kindLoopback  = "the host's loopback"
	kindMetadata  = "the address of a metadata service"
	kindPrivate   = "a private address"
	kindLinkLocal = "a link-local address"
	kindShared    = "an address of a carrier's network"
	kindMulticast = "a multicast or broadcast address"
	kindReserved  = "a reserved address"
	kindOwn       = "an address of the host itself"
)

// plainAddr is an address in the one form in which addresses are compared.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// addrKind says which kind of address it is. There is no table of prefixes: it
// would have to be built whenever the program starts.
func addrKind(a netip.Addr) string {
	a = plainAddr(a)
	if a.Is4() {
		return kind4(a.As4())
	}
	if a.IsLoopback() || a.IsUnspecified() {
		return kindLoopback // before ::1 is taken for an old form of 0.0.0.1
	}
	if inner, ok := embedded(a); ok {
		if kind := kind4(inner.As4()); kind != kindPublic {
			return kind
		}
	}
	return kind6(a)
}

func kind4(b [4]byte) string {
	switch {
	case b[0] == 127, b == [4]byte{}: // connecting to 0.0.0.0 reaches the loopback
		return kindLoopback
	case b == [4]byte{169, 254, 169, 254}, b == [4]byte{169, 254, 170, 2}, b == [4]byte{169, 254, 170, 23}, b == [4]byte{100, 100, 100, 200},
		b == [4]byte{192, 0, 0, 192}, b == [4]byte{168, 63, 129, 16}:
		return kindMetadata
	case b[0] == 10, b[0] == 172 && b[1]&0xf0 == 16, b[0] == 192 && b[1] == 168:
		return kindPrivate
	case b[0] == 169 && b[1] == 254:
		return kindLinkLocal
	case b[0] == 100 && b[1]&0xc0 == 64:
		return kindShared
	case b[0]&0xf0 == 224, b == [4]byte{255, 255, 255, 255}:
		return kindMulticast
	}
	if reserved4(b) {
		return kindReserved
	}
	return kindPublic
}

// reserved4 are the networks for protocols, documentation, 6to4 relays,
// benchmarks (among them the sandbox's own) and the future: RFC 6890 and others.
func reserved4(b [4]byte) bool {
	three := [3]byte(b[:3])
	return b[0] == 0 || b[0] >= 240 || b[0] == 198 && b[1]&0xfe == 18 ||
		three == [3]byte{192, 0, 0} || three == [3]byte{192, 0, 2} || three == [3]byte{192, 88, 99} ||
		three == [3]byte{198, 51, 100} || three == [3]byte{203, 0, 113}
}

func kind6(a netip.Addr) string {
	b := a.As16()
	switch {
	case metadata6(b):
		return kindMetadata
	case b[0]&0xfe == 0xfc, b[0] == 0xfe && b[1]&0xc0 == 0xc0, prefix6(b, 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01): // unique local, site-local, local NAT64
		return kindPrivate
	case a.IsLinkLocalUnicast():
		return kindLinkLocal
	case a.IsMulticast():
		return kindMulticast
	case prefix6(b, 0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0): // NAT64 of a public address
		return kindPublic
	}
	if reserved6(b) {
		return kindReserved
	}
	return kindPublic
}

// metadata6 are the metadata and pod identity services of EC2, and that of GCP.
func metadata6(b [16]byte) bool {
	return b == [16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54} ||
		b == [16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x00, 15: 0x23} ||
		b == [16]byte{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}
}

// reserved6 is all that is not handed out for the public internet, which is
// 2000::/3, and in it the networks for protocols and Teredo, documentation.
func reserved6(b [16]byte) bool {
	return b[0]&0xe0 != 0x20 || prefix6(b, 0x20, 0x01, 0x0d, 0xb8) || b[0] == 0x20 && b[1] == 0x01 && b[2]&0xfe == 0 ||
		b[0] == 0x3f && b[1] == 0xff && b[2]&0xf0 == 0
}

// embedded returns the address of IPv4 that one of IPv6 stands for: NAT64
// (64:ff9b::/96), 6to4 (2002::/16), and the old forms ::a.b.c.d and
// ::ffff:0:a.b.c.d.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case prefix6(b, 0x20, 0x02):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case prefix6(b, 0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0), prefix6(b, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0):
		return last, true
	case prefix6(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0):
		return last, true
	}
	return netip.Addr{}, false
}

func prefix6(b [16]byte, prefix ...byte) bool {
	for i, c := range prefix {
		if b[i] != c {
			return false
		}
	}
	return true
}
