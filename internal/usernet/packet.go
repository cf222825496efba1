//go:build linux

package usernet

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// quote rebuilds as much of a packet as a control message repeats of it: the
// addresses and ports by which the kernel finds the socket, and for TCP the
// sequence number.
func quote(proto uint8, from, to netip.AddrPort, sequence uint32) []byte {
	head := make([]byte, 8)
	binary.BigEndian.PutUint16(head[0:], from.Port())
	binary.BigEndian.PutUint16(head[2:], to.Port())
	binary.BigEndian.PutUint32(head[4:], sequence)
	return quoteHeader(proto, from.Addr(), to.Addr(), head)
}

// quoteHeader puts an IP header before the start of a transport's.
func quoteHeader(proto uint8, from, to netip.Addr, transport []byte) []byte {
	if from.Is4() {
		b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(transport))
		ip := header.IPv4(b)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(b) + len(transport)), TTL: 64, Protocol: proto,
			SrcAddr: addressOf(from), DstAddr: addressOf(to),
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		return append(b, transport...)
	}
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(transport))
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(transport)), HopLimit: 64, TransportProtocol: tcpip.TransportProtocolNumber(proto),
		SrcAddr: addressOf(from), DstAddr: addressOf(to),
	})
	return append(b, transport...)
}

func checksumOf(b []byte, initial uint16) uint16 { return checksum.Checksum(b, initial) }

// cheapRandom is the stack's source of numbers that need not be secret. Its own
// would be seeded for each stack, which takes longer than all the rest.
type cheapRandom struct{}

// Int63 implements rand.Source.
func (cheapRandom) Int63() int64 { return rand.Int64() }

// Seed implements rand.Source.
func (cheapRandom) Seed(int64) {}
