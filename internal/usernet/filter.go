//go:build linux

package usernet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An action is what the filter does with a packet from the sandbox.
type action int

const (
	drop   action = iota // silently
	refuse               // with a control message: a protocol that is not carried
	accept
)

// Numbers of IP protocols.
const (
	protoICMP     = uint8(header.ICMPv4ProtocolNumber)
	protoTCP      = uint8(header.TCPProtocolNumber)
	protoUDP      = uint8(header.UDPProtocolNumber)
	protoICMPv6   = uint8(header.ICMPv6ProtocolNumber)
	protoFragment = uint8(header.IPv6FragmentExtHdrIdentifier)
	protoHopByHop = uint8(header.IPv6HopByHopOptionsExtHdrIdentifier)
)

// A filter decides which packets from the sandbox reach the stack. It reads only
// headers and changes nothing.
type filter struct {
	own []netip.Addr // the sandbox's addresses, the only valid sources
}

// inspect decides about the IP packet at the start of b. It returns the packet without
// the padding that an Ethernet frame may have after it.
func (f *filter) inspect(b []byte) (packet []byte, proto tcpip.NetworkProtocolNumber, a action) {
	if len(b) == 0 {
		return nil, 0, drop
	}
	switch b[0] >> 4 {
	case header.IPv4Version:
		packet, a = f.inspect4(b)
		return packet, header.IPv4ProtocolNumber, a
	case header.IPv6Version:
		packet, a = f.inspect6(b)
		return packet, header.IPv6ProtocolNumber, a
	}
	return nil, 0, drop
}

func (f *filter) inspect4(b []byte) ([]byte, action) {
	const size = header.IPv4MinimumSize
	if len(b) < size {
		return nil, drop
	}
	ip := header.IPv4(b)
	total := int(ip.TotalLength())
	// Options are used only for attacks on routers.
	if ip.HeaderLength() != size || total < size || total > len(b) {
		return nil, drop
	}
	b = b[:total]
	if !f.passes(netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))) {
		return nil, drop
	}
	if ip.Protocol() == protoICMP && ip.FragmentOffset() == 0 {
		return b, onlyType(b[size:], byte(header.ICMPv4Echo))
	}
	return b, carried4(ip.Protocol())
}

func (f *filter) inspect6(b []byte) ([]byte, action) {
	const size = header.IPv6MinimumSize
	if len(b) < size {
		return nil, drop
	}
	total := size + int(binary.BigEndian.Uint16(b[4:6]))
	if total > len(b) {
		return nil, drop
	}
	b = b[:total]
	if !f.passes(netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))) {
		return nil, drop
	}
	next, payload, offset := b[6], b[size:], uint16(0)
	if next == protoFragment {
		if len(payload) < header.IPv6FragmentHeaderSize {
			return nil, drop
		}
		next, offset = payload[0], binary.BigEndian.Uint16(payload[2:4])>>3
		payload = payload[header.IPv6FragmentHeaderSize:]
	}
	if next == protoICMPv6 && offset == 0 {
		return b, onlyType(payload, byte(header.ICMPv6EchoRequest))
	}
	return b, carried6(next)
}

// passes reports whether packets from src to dst are allowed at all. Linux never sends
// loopback addresses to a link, but a raw socket can.
func (f *filter) passes(src, dst netip.Addr) bool {
	switch {
	case !slices.Contains(f.own, src), slices.Contains(f.own, dst):
		return false
	case dst.IsMulticast(), dst.IsUnspecified(), dst.IsLoopback(), dst.Is4In6(), dst.Is6() && dst.IsLinkLocalUnicast():
		return false
	}
	return !dst.Is4() || dst.As4() != [4]byte{255, 255, 255, 255}
}

// onlyType accepts an ICMP message of one type.
func onlyType(message []byte, want byte) action {
	if len(message) < header.ICMPv4MinimumSize || message[0] != want {
		return drop
	}
	return accept
}

func carried4(proto uint8) action {
	switch proto {
	case protoTCP, protoUDP, protoICMP:
		return accept
	}
	return refuse
}

// carried6 drops packets that the kernel sends by itself (group membership, after a
// hop-by-hop header), and refuses other protocols.
func carried6(next uint8) action {
	switch next {
	case protoTCP, protoUDP, protoICMPv6:
		return accept
	case protoHopByHop:
		return drop
	}
	return refuse
}

// An ethernet is the link layer of a veth pair, with one neighbour on each side. The
// stack behind it sees only IP packets. Address requests (ARP, neighbour solicitations)
// are answered here: every address except the sandbox's own is at this side's link
// address. So there is no table that could expire or be poisoned.
type ethernet struct {
	mac, peer tcpip.LinkAddress
	own       []netip.Addr
}

// inspect reports whether a frame of this type has a packet for the stack. For an
// address request it returns the frame that answers it.
func (e *ethernet) inspect(kind tcpip.NetworkProtocolNumber, packet []byte) (answer []byte, isPacket bool) {
	switch kind {
	case header.ARPProtocolNumber:
		return e.answerARP(packet), false
	case header.IPv6ProtocolNumber:
		answer := e.answerNeighbour(packet)
		return answer, answer == nil
	}
	return nil, kind == header.IPv4ProtocolNumber
}

// fillHeader writes the header of a frame to the sandbox.
func (e *ethernet) fillHeader(b []byte, proto tcpip.NetworkProtocolNumber) {
	header.Ethernet(b).Encode(&header.EthernetFields{SrcAddr: e.mac, DstAddr: e.peer, Type: proto})
}

func (e *ethernet) answerARP(b []byte) []byte {
	ask := header.ARP(b)
	if !ask.IsValid() || ask.Op() != header.ARPRequest {
		return nil
	}
	target := netip.AddrFrom4([4]byte(ask.ProtocolAddressTarget()))
	if e.isOwn(target) || target.IsUnspecified() {
		return nil
	}
	const size = header.EthernetMinimumSize
	frame := make([]byte, size+header.ARPSize)
	e.fillHeader(frame, header.ARPProtocolNumber)
	reply := header.ARP(frame[size:])
	reply.SetIPv4OverEthernet()
	reply.SetOp(header.ARPReply)
	copy(reply.HardwareAddressSender(), e.mac)
	copy(reply.ProtocolAddressSender(), ask.ProtocolAddressTarget())
	copy(reply.HardwareAddressTarget(), e.peer)
	copy(reply.ProtocolAddressTarget(), ask.ProtocolAddressSender())
	return frame
}

// The layout of neighbour solicitations and advertisements, RFC 4861.
const (
	neighbourSize   = 24 // type, code, checksum, flags, target
	neighbourTarget = 8
	neighbourMAC    = 8 // the option with the link address
	maxHopLimit     = 255
)

// answerNeighbour answers a neighbour solicitation. It returns nil for other packets,
// and for a solicitation from the unspecified address, which asks whether an address is
// in use: none is.
func (e *ethernet) answerNeighbour(b []byte) []byte {
	const ipSize = header.IPv6MinimumSize
	if len(b) < ipSize+neighbourSize || b[6] != protoICMPv6 || b[7] != maxHopLimit {
		return nil
	}
	ask := b[ipSize:]
	if header.ICMPv6(ask).Type() != header.ICMPv6NeighborSolicit {
		return nil
	}
	target := netip.AddrFrom16([16]byte(ask[neighbourTarget : neighbourTarget+16]))
	asker := header.IPv6(b).SourceAddress()
	if e.isOwn(target) || target.IsMulticast() || asker.Unspecified() {
		return nil
	}
	return e.advertise(target, asker)
}

// advertise returns the frame that tells the sandbox that the target is at this side's
// link address.
func (e *ethernet) advertise(target netip.Addr, to tcpip.Address) []byte {
	const ethSize, ipSize, size = header.EthernetMinimumSize, header.IPv6MinimumSize, neighbourSize + neighbourMAC
	frame := make([]byte, ethSize+ipSize+size)
	e.fillHeader(frame, header.IPv6ProtocolNumber)
	from := tcpip.AddrFrom16(target.As16())
	header.IPv6(frame[ethSize:]).Encode(&header.IPv6Fields{
		PayloadLength: size, HopLimit: maxHopLimit, TransportProtocol: header.ICMPv6ProtocolNumber, SrcAddr: from, DstAddr: to,
	})
	b := frame[ethSize+ipSize:]
	b[0] = byte(header.ICMPv6NeighborAdvert)
	b[4] = 0xe0 // from a router, asked for, replaces what was known
	copy(b[neighbourTarget:], target.AsSlice())
	b[neighbourSize], b[neighbourSize+1] = 2, 1 // the target's link address, in units of 8 bytes
	copy(b[neighbourSize+2:], e.mac)
	sum := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, from, to, size)
	binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, sum))
	return frame
}

func (e *ethernet) isOwn(a netip.Addr) bool {
	return slices.Contains(e.own, a)
}
