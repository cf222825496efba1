//go:build linux

package usernet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// maxPings is how many echo requests may be under way. More are lost.
	maxPings = 128
	// pingLimit is how long an answer is waited for.
	pingLimit = 10 * time.Second
)

// pings are the echo requests under way.
type pings struct {
	running atomic.Int32
	noted   sync.Once
}

// forwardPing handles an echo request of the sandbox.
func (s *Stack) forwardPing(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	e := echo{client: addrOf(id.RemoteAddress), dst: addrOf(id.LocalAddress), message: message(pkt)}
	if len(e.message) < echoSize {
		return true
	}
	if s.isGateway(e.dst) {
		s.sendEcho(e, e.payload())
		return true
	}
	if s.pings.running.Add(1) > maxPings || !s.enter() {
		s.pings.running.Add(-1)
		return true
	}
	go func() {
		defer s.work.Done()
		defer s.pings.running.Add(-1)
		s.ping(e)
	}()
	return true
}

// message returns the whole ICMP message of a packet.
func message(pkt *stack.PacketBuffer) []byte {
	b := append([]byte(nil), pkt.TransportHeader().Slice()...)
	return append(b, pkt.Data().AsRange().ToSlice()...)
}

// ping sends an echo request that the gate allows, and its answer back.
func (s *Stack) ping(e echo) {
	if refused := s.gate.ping(s.ctx, e.client, e.dst); refused != nil {
		s.refusePing(e, forbidden)
		return
	}
	answer, err := hostEcho(s.ctx, e.dst, e.sequence(), e.payload())
	switch {
	case err == nil:
		s.sendEcho(e, answer)
	case errors.Is(err, errNoPing):
		s.pings.noted.Do(func() { s.notice(noPingText) })
		s.refusePing(e, noHost)
	case !isTimeout(err):
		s.refusePing(e, noHost)
	}
}

// An echo is an echo request of the sandbox.
type echo struct {
	client, dst netip.Addr
	message     []byte
}

// echoSize is the size of the header of echo messages: type, code, checksum,
// identifier, sequence number.
const echoSize = 8

func (e echo) sequence() uint16 { return binary.BigEndian.Uint16(e.message[6:]) }
func (e echo) payload() []byte  { return e.message[echoSize:] }

// sendEcho answers an echo request.
func (s *Stack) sendEcho(e echo, payload []byte) {
	proto := header.ICMPv4ProtocolNumber
	if e.dst.Is6() {
		proto = header.ICMPv6ProtocolNumber
	}
	s.send(e.dst, e.client, proto, payload, func(pkt *stack.PacketBuffer, r *stack.Route) {
		head := pkt.TransportHeader().Push(echoSize)
		copy(head, e.message[:echoSize])
		head[1], head[2], head[3] = 0, 0, 0
		if proto == header.ICMPv4ProtocolNumber {
			head[0] = byte(header.ICMPv4EchoReply)
			binary.BigEndian.PutUint16(head[2:], ^checksumOf(payload, checksumOf(head, 0)))
			return
		}
		head[0] = byte(header.ICMPv6EchoReply)
		sum := header.PseudoHeaderChecksum(proto, r.LocalAddress(), r.RemoteAddress(), uint16(echoSize+len(payload)))
		binary.BigEndian.PutUint16(head[2:], ^checksumOf(payload, checksumOf(head, sum)))
	})
}

// refusePing answers an echo request with a control message.
func (s *Stack) refusePing(e echo, why unreachable) {
	proto := protoICMP
	if e.dst.Is6() {
		proto = protoICMPv6
	}
	packet := quoteHeader(proto, e.client, e.dst, e.message[:echoSize])
	s.link.writeRaw(controlMessage(packet, why))
}

// send sends a packet to the sandbox; encode adds the header of the transport.
func (s *Stack) send(from, to netip.Addr, proto tcpip.TransportProtocolNumber, payload []byte, encode func(*stack.PacketBuffer, *stack.Route)) {
	number := header.IPv4ProtocolNumber
	if to.Is6() {
		number = header.IPv6ProtocolNumber
	}
	r, err := s.net.FindRoute(nicID, addressOf(from), addressOf(to), number, false)
	if err != nil {
		return
	}
	defer r.Release()
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(r.MaxHeaderLength()) + header.UDPMinimumSize,
		Payload:            newPayload(payload),
	})
	defer pkt.DecRef()
	pkt.TransportProtocolNumber = proto
	encode(pkt, r)
	_ = r.WritePacket(stack.NetworkHeaderParams{Protocol: proto, TTL: r.DefaultTTL(), TOS: stack.DefaultTOS}, pkt)
}
