//go:build linux

package usernet

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// acknowledgeFirst delivers, before a segment with data of a connection whose
// handshake is not complete, the acknowledgement alone that the segment carries.
//
// The stack puts a segment that completes a handshake and has data into its queue
// again, and charges the connection twice for memory that is given back once. The
// rest is missing in the receive buffer for good: where that is small, segments that
// came out of order fill it, and the one before them is dropped however often it is
// sent. Programs need not mean it: the kernel leaves the bare acknowledgement out
// with TCP_QUICKACK off, and it is lost when the packet socket is full.
func (e *endpoint) acknowledgeFirst(packet []byte, proto tcpip.NetworkProtocolNumber) {
	if e.opening == nil {
		return
	}
	id, size := segmentWithData(packet, proto)
	if size > 0 && e.opening(id) {
		e.deliver(buffer.NewViewWithData(cutAfter(packet, size, proto)), proto)
	}
}

// segmentWithData returns whose segment a packet holds that acknowledges and has
// data, and the size of its headers; 0 for all other packets.
func segmentWithData(packet []byte, proto tcpip.NetworkProtocolNumber) (id stack.TransportEndpointID, headers int) {
	var network header.Network = header.IPv4(packet)
	start, isFragment := header.IPv4MinimumSize, false
	if proto == header.IPv6ProtocolNumber {
		network, start = header.IPv6(packet), header.IPv6MinimumSize
	} else {
		isFragment = header.IPv4(packet).More() || header.IPv4(packet).FragmentOffset() != 0
	}
	if isFragment || network.TransportProtocol() != header.TCPProtocolNumber || len(packet) < start+header.TCPMinimumSize {
		return id, 0
	}
	segment := header.TCP(packet[start:])
	const kinds = header.TCPFlagSyn | header.TCPFlagRst | header.TCPFlagAck
	size := int(segment.DataOffset())
	if segment.Flags()&kinds != header.TCPFlagAck || size < header.TCPMinimumSize || start+size >= len(packet) {
		return id, 0
	}
	return stack.TransportEndpointID{
		LocalAddress: network.DestinationAddress(), LocalPort: segment.DestinationPort(),
		RemoteAddress: network.SourceAddress(), RemotePort: segment.SourcePort(),
	}, start + size
}

// cutAfter returns a copy of the headers of a packet with a TCP segment, as a packet
// that has no data and does not end the stream.
func cutAfter(packet []byte, headers int, proto tcpip.NetworkProtocolNumber) []byte {
	b := append([]byte(nil), packet[:headers]...)
	start := header.IPv4MinimumSize
	if proto == header.IPv6ProtocolNumber {
		start = header.IPv6MinimumSize
		header.IPv6(b).SetPayloadLength(uint16(headers - start))
	} else {
		ip := header.IPv4(b)
		ip.SetTotalLength(uint16(headers))
		ip.SetChecksum(0)
		ip.SetChecksum(^ip.CalculateChecksum())
	}
	header.TCP(b[start:]).SetFlags(uint8(header.TCPFlagAck))
	return b
}
