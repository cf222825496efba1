//go:build linux

package usernet

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// An unreachable says why a packet was not delivered, as both versions of ICMP
// do. The choice decides the error that the program inside gets.
type unreachable int

const (
	// noPort is the answer of a host on which nobody listens: ECONNREFUSED.
	noPort unreachable = iota
	// noHost is the answer of a router that cannot find the host: EHOSTUNREACH.
	noHost
	// noNet is the answer of a router that has no route: ENETUNREACH.
	noNet
	// noProtocol refuses a protocol that is not carried: ENOPROTOOPT.
	noProtocol
	// forbidden is the answer for an echo request that a rule refuses:
	// EHOSTUNREACH, with "packet filtered" in the output of ping.
	forbidden
)

func (u unreachable) code4() header.ICMPv4Code {
	switch u {
	case noHost:
		return header.ICMPv4HostUnreachable
	case noNet:
		return header.ICMPv4NetUnreachable
	case noProtocol:
		return header.ICMPv4ProtoUnreachable
	case forbidden:
		return header.ICMPv4AdminProhibited
	}
	return header.ICMPv4PortUnreachable
}

func (u unreachable) code6() header.ICMPv6Code {
	switch u {
	case noHost:
		return header.ICMPv6AddressUnreachable
	case noNet:
		return header.ICMPv6NetworkUnreachable
	case noProtocol, forbidden:
		return header.ICMPv6Prohibited
	}
	return header.ICMPv6PortUnreachable
}

// quoted is how much of the refused packet a control message repeats: enough
// for its header and the ports. The rest would only be copied.
const quoted = 64

// controlMessage returns the packet that says that the other one was not
// delivered. It seems to come from where the packet was going, because nothing
// else is on this network. It returns nil for what has no IP header.
func controlMessage(packet []byte, why unreachable) []byte {
	if len(packet) == 0 {
		return nil
	}
	switch packet[0] >> 4 {
	case header.IPv4Version:
		return controlMessage4(packet, why.code4())
	case header.IPv6Version:
		return controlMessage6(packet, why.code6())
	}
	return nil
}

func controlMessage4(packet []byte, code header.ICMPv4Code) []byte {
	const ipSize, size = header.IPv4MinimumSize, header.ICMPv4MinimumSize
	if len(packet) < ipSize {
		return nil
	}
	from := header.IPv4(packet)
	quote := packet[:min(len(packet), quoted)]
	b := make([]byte, ipSize+size+len(quote))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: protoICMP,
		SrcAddr: from.DestinationAddress(), DstAddr: from.SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(b[ipSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(code)
	copy(b[ipSize+size:], quote)
	icmp.SetChecksum(^checksum.Checksum(b[ipSize:], 0))
	return b
}

func controlMessage6(packet []byte, code header.ICMPv6Code) []byte {
	const ipSize, size = header.IPv6MinimumSize, header.ICMPv6DstUnreachableMinimumSize
	if len(packet) < ipSize {
		return nil
	}
	from := header.IPv6(packet)
	quote := packet[:min(len(packet), quoted)]
	b := make([]byte, ipSize+size+len(quote))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(size + len(quote)), HopLimit: 64, TransportProtocol: header.ICMPv6ProtocolNumber,
		SrcAddr: from.DestinationAddress(), DstAddr: from.SourceAddress(),
	})
	icmp := header.ICMPv6(b[ipSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(code)
	copy(b[ipSize+size:], quote)
	sum := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, from.DestinationAddress(), from.SourceAddress(), uint16(size+len(quote)))
	binary.BigEndian.PutUint16(b[ipSize+2:], ^checksum.Checksum(b[ipSize:], sum))
	return b
}
