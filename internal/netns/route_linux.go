package netns

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// loopbackIndex is the number of "lo" in every namespace.
const loopbackIndex = 1

const (
	vethPeer    = 1 // VETH_INFO_PEER
	genModeNone = 1 // IN6_ADDR_GEN_MODE_NONE
	create      = unix.NLM_F_CREATE | unix.NLM_F_EXCL
)

// ifinfo is a struct ifinfomsg.
func ifinfo(index int32, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// addVeth makes the pair.
func (b *batch) addVeth(cfg LinkConfig) {
	b.message(unix.RTM_NEWLINK, create, "make the veth pair "+cfg.Name, ifinfo(linkIndex, 0, 0)...)
	b.attrText(unix.IFLA_IFNAME, cfg.Name)
	b.attr(unix.IFLA_ADDRESS, linkMAC[:])
	b.nested(unix.IFLA_LINKINFO, func() {
		b.attrText(unix.IFLA_INFO_KIND, "veth")
		b.nested(unix.IFLA_INFO_DATA, func() {
			b.nested(vethPeer, func() {
				b.bytes = append(b.bytes, ifinfo(peerIndex, 0, 0)...)
				b.attrText(unix.IFLA_IFNAME, peerName)
				b.attr(unix.IFLA_ADDRESS, peerMAC[:])
			})
		})
	})
}

// quietIPv6 keeps an interface from having a link-local address, and with it from
// looking for duplicates and routers when it comes up.
func (b *batch) quietIPv6(index int32, name string) {
	b.message(unix.RTM_NEWLINK, 0, "set the IPv6 address mode of "+name, ifinfo(index, 0, 0)...)
	b.ifOptional(true)
	b.nested(unix.IFLA_AF_SPEC, func() {
		b.nested(unix.AF_INET6, func() { b.attr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{genModeNone}) })
	})
}

// up brings an interface up; an mtu of 0 stays as it is.
func (b *batch) up(index int32, name string, mtu int) {
	b.message(unix.RTM_NEWLINK, 0, "bring up "+name, ifinfo(index, unix.IFF_UP, unix.IFF_UP)...)
	if mtu > 0 {
		b.attr32(unix.IFLA_MTU, uint32(mtu))
	}
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address gives an interface an address that can be used at once, with no look
// for duplicates.
func (b *batch) address(index uint32, p netip.Prefix) {
	head := []byte{family(p.Addr()), byte(p.Bits()), 0, 0}
	b.message(unix.RTM_NEWADDR, create, "add the address "+p.String(), binary.NativeEndian.AppendUint32(head, index)...)
	b.ifOptional(p.Addr().Is6())
	b.attr32(unix.IFA_FLAGS, unix.IFA_F_NOPREFIXROUTE|unix.IFA_F_NODAD|unix.IFA_F_PERMANENT)
	b.attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	b.attr(unix.IFA_ADDRESS, p.Addr().AsSlice())
	if p.Addr().Is6() {
		b.local(index, p.Addr())
	}
}

// local makes an interface take what is for an IPv6 address. The kernel does so
// too, but later, in a work queue; until then it would drop the answers to
// what is sent from the address already.
func (b *batch) local(index uint32, a netip.Addr) {
	head := routeTo(a, a.BitLen(), unix.RT_SCOPE_HOST)
	head[4], head[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	b.message(unix.RTM_NEWROUTE, create, "receive at the address "+a.String(), head...)
	b.ifOptional(true)
	b.attr(unix.RTA_DST, a.AsSlice())
	b.attr32(unix.RTA_OIF, index)
}

// routes sends what is for the gateway to the interface, and everything else to
// the gateway.
func (b *batch) routes(index uint32, gateway netip.Addr) {
	b.message(unix.RTM_NEWROUTE, create, "add the route to "+gateway.String(), routeTo(gateway, gateway.BitLen(), unix.RT_SCOPE_LINK)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.RTA_DST, gateway.AsSlice())
	b.attr32(unix.RTA_OIF, index)
	b.message(unix.RTM_NEWROUTE, create, "add the default route by "+gateway.String(), routeTo(gateway, 0, unix.RT_SCOPE_UNIVERSE)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.RTA_GATEWAY, gateway.AsSlice())
	b.attr32(unix.RTA_OIF, index)
}

// routeTo is a struct rtmsg.
func routeTo(gateway netip.Addr, bits int, scope byte) []byte {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1], b[4] = family(gateway), byte(bits), unix.RT_TABLE_MAIN
	b[5], b[6], b[7] = unix.RTPROT_STATIC, scope, unix.RTN_UNICAST
	return b
}

// neighbour says which address the frames for a gateway have, for ever.
func (b *batch) neighbour(index uint32, gateway netip.Addr, mac [6]byte) {
	head := []byte{family(gateway), 0, 0, 0}
	head = binary.NativeEndian.AppendUint32(head, index)
	head = binary.NativeEndian.AppendUint16(head, unix.NUD_PERMANENT)
	b.message(unix.RTM_NEWNEIGH, create, "add the neighbour "+gateway.String(), append(head, 0, 0)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.NDA_DST, gateway.AsSlice())
	b.attr(unix.NDA_LLADDR, mac[:])
}
