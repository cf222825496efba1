//go:build linux

package usernet

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An ethernet is the link layer of a veth: one neighbour on either side. The
// stack behind it sees IP packets only; the questions who has an address are
// answered here, with this side's address for every address but the sandbox's
// own. So there is nothing to look up, expire or poison.
type ethernet struct {
	mac, peer tcpip.LinkAddress
	own       []netip.Addr
}

// inspect reports whether a frame of the type holds a packet for the stack, and
// returns the frame that answers it if it is a question about addresses.
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

// answerNeighbour answers a neighbour solicitation, and returns nil for other
// packets. One from the unspecified address asks whether an address is in use;
// none is.
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

// advertise says that the target is at this side.
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
	for _, own := range e.own {
		if own == a {
			return true
		}
	}
	return false
}
