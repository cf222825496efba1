//go:build linux

package usernet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An action is what happens with a packet from the sandbox.
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

// A filter decides which packets of the sandbox reach the stack. It reads
// headers only and changes nothing.
type filter struct {
	own []netip.Addr // the sandbox's addresses, the only valid sources
}

// inspect judges the IP packet at the start of b. It returns the packet without
// what follows it in b: an Ethernet frame may be padded.
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
	// Options are good for nothing but attacks on routers. The kernel drops
	// packets with them in many places, too.
	if ip.HeaderLength() != size || total < size || total > len(b) {
		return nil, drop
	}
	b = b[:total]
	if !f.passes(netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))) {
		return nil, drop
	}
	if ip.FragmentOffset() != 0 {
		return b, carried4(ip.Protocol())
	}
	if ip.Protocol() == protoICMP {
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
	next, payload := b[6], b[size:]
	if next == protoFragment {
		return b, inspectFragment6(payload)
	}
	return b, inspectNext6(next, payload)
}

// inspectFragment6 judges a fragment by its header, and the first one also by
// what follows.
func inspectFragment6(b []byte) action {
	const size = header.IPv6FragmentHeaderSize
	if len(b) < size {
		return drop
	}
	next, offset := b[0], binary.BigEndian.Uint16(b[2:4])>>3
	if offset != 0 {
		return carried6(next)
	}
	return inspectNext6(next, b[size:])
}

func inspectNext6(next uint8, payload []byte) action {
	if next == protoICMPv6 {
		return onlyType(payload, byte(header.ICMPv6EchoRequest))
	}
	return carried6(next)
}

// passes reports whether a packet may go from src to dst at all. Loopback
// addresses never leave a Linux machine, but a raw socket could send them.
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

// carried6 drops what the kernel sends on its own (group membership comes after
// a hop-by-hop header) and refuses other protocols.
func carried6(next uint8) action {
	switch next {
	case protoTCP, protoUDP, protoICMPv6:
		return accept
	case protoHopByHop:
		return drop
	}
	return refuse
}
