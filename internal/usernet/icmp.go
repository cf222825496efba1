//go:build linux

package usernet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// An unreachable says why a packet was not delivered, in both versions of ICMP. It
// decides which error the program inside gets.
type unreachable int

const (
	noPort     unreachable = iota // nobody listens: ECONNREFUSED
	noHost                        // the host is not found: EHOSTUNREACH
	noNet                         // there is no route: ENETUNREACH
	noProtocol                    // the protocol is not carried: ENOPROTOOPT
	forbidden                     // a rule refuses the echo request: EHOSTUNREACH, and ping prints "packet filtered"
)

// unreachableCodes are the codes for both versions of ICMP.
var unreachableCodes = [...]struct {
	v4 header.ICMPv4Code
	v6 header.ICMPv6Code
}{
	noPort:     {header.ICMPv4PortUnreachable, header.ICMPv6PortUnreachable},
	noHost:     {header.ICMPv4HostUnreachable, header.ICMPv6AddressUnreachable},
	noNet:      {header.ICMPv4NetUnreachable, header.ICMPv6NetworkUnreachable},
	noProtocol: {header.ICMPv4ProtoUnreachable, header.ICMPv6Prohibited},
	forbidden:  {header.ICMPv4AdminProhibited, header.ICMPv6Prohibited},
}

// maxQuote is how much of a refused packet a control message repeats: enough for the IP
// header and the ports.
const maxQuote = 64

// controlMessage returns the packet that reports that another one was not delivered.
// Its source is the other packet's destination, because the network has no routers. It
// returns nil for data without an IP header.
func controlMessage(packet []byte, why unreachable) []byte {
	code := unreachableCodes[why]
	quote := packet[:min(len(packet), maxQuote)]
	message := append(make([]byte, header.ICMPv4MinimumSize), quote...) // the header of ICMPv6 has the same size
	switch {
	case len(packet) >= header.IPv4MinimumSize && packet[0]>>4 == header.IPv4Version:
		ip := header.IPv4(packet)
		message[0], message[1] = byte(header.ICMPv4DstUnreachable), byte(code.v4)
		binary.BigEndian.PutUint16(message[2:], ^checksum.Checksum(message, 0))
		return ipPacket(protoICMP, addrOf(ip.DestinationAddress()), addrOf(ip.SourceAddress()), message)
	case len(packet) >= header.IPv6MinimumSize && packet[0]>>4 == header.IPv6Version:
		ip := header.IPv6(packet)
		from, to := ip.DestinationAddress(), ip.SourceAddress()
		message[0], message[1] = byte(header.ICMPv6DstUnreachable), byte(code.v6)
		sum := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, from, to, uint16(len(message)))
		binary.BigEndian.PutUint16(message[2:], ^checksum.Checksum(message, sum))
		return ipPacket(protoICMPv6, addrOf(from), addrOf(to), message)
	}
	return nil
}

// unreachable reports that a packet of a pair was not delivered. It rebuilds the part of
// the packet that the message repeats: the addresses and ports by which the kernel finds
// the socket, and for TCP the sequence number.
func (s *Stack) unreachable(proto uint8, p pair, sequence uint32, why unreachable) {
	head := make([]byte, 8)
	binary.BigEndian.PutUint16(head[0:], p.client.Port())
	binary.BigEndian.PutUint16(head[2:], p.dst.Port())
	binary.BigEndian.PutUint32(head[4:], sequence)
	s.link.writeRaw(controlMessage(ipPacket(proto, p.client.Addr(), p.dst.Addr(), head), why))
}

// ipPacket puts an IP header before the message of a transport.
func ipPacket(proto uint8, from, to netip.Addr, transport []byte) []byte {
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

// cheapRandom is the stack's source of random numbers that need not be secret. The
// default source is seeded for each stack, which takes longer than the rest of the
// start.
type cheapRandom struct{}

// Int63 implements rand.Source.
func (cheapRandom) Int63() int64 { return rand.Int64() }

// Seed implements rand.Source.
func (cheapRandom) Seed(int64) {}

const (
	// maxPings bounds the echo requests in flight. Further ones are lost.
	maxPings = 128
	// pingLimit bounds the wait for an answer.
	pingLimit = 10 * time.Second
)

// pings are the echo requests in flight.
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

// ping sends an echo request that the gate allows, and returns the answer to the
// sandbox.
func (s *Stack) ping(e echo) {
	if refused := s.gate.Ping(s.ctx, e.client, e.dst); refused != nil {
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
			binary.BigEndian.PutUint16(head[2:], ^checksum.Checksum(payload, checksum.Checksum(head, 0)))
			return
		}
		head[0] = byte(header.ICMPv6EchoReply)
		sum := header.PseudoHeaderChecksum(proto, r.LocalAddress(), r.RemoteAddress(), uint16(echoSize+len(payload)))
		binary.BigEndian.PutUint16(head[2:], ^checksum.Checksum(payload, checksum.Checksum(head, sum)))
	})
}

// refusePing answers an echo request with a control message.
func (s *Stack) refusePing(e echo, why unreachable) {
	proto := protoICMP
	if e.dst.Is6() {
		proto = protoICMPv6
	}
	packet := ipPacket(proto, e.client, e.dst, e.message[:echoSize])
	s.link.writeRaw(controlMessage(packet, why))
}

// send sends a packet to the sandbox. encode adds the transport header.
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

// errNoPing means that this user may not send echo requests.
var errNoPing = errors.New("this user may not send echo requests")

const noPingText = "ping: the kernel does not let this user send echo requests, so they are answered as unreachable inside; " +
	"allow it with: sysctl net.ipv4.ping_group_range=\"0 2147483647\""

// A pinger is a socket that sends echo requests of one IP version.
type pinger struct {
	file *os.File
	raw  bool // a raw socket: it receives all answers to the host, for IPv4 with the IP header
	v6   bool
	id   uint16 // chosen here for a raw socket, by the kernel for others
}

// hostEcho sends an echo request from the host and returns the payload of the
// answer.
func hostEcho(ctx context.Context, dst netip.Addr, sequence uint16, payload []byte) ([]byte, error) {
	p, err := openPinger(dst)
	if err != nil {
		return nil, err
	}
	defer p.file.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.file.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.file.SetReadDeadline(time.Now().Add(pingLimit)); err != nil {
		return nil, err
	}
	if _, err := p.file.Write(p.request(sequence, payload)); err != nil {
		return nil, err
	}
	b := make([]byte, maxPacket)
	for {
		n, err := p.file.Read(b)
		if err != nil {
			return nil, err
		}
		if answer, ok := p.answer(b[:n], sequence); ok {
			return bytes.Clone(answer), nil
		}
	}
}

// openPinger opens a ping socket, which needs no privilege except a group in
// net.ipv4.ping_group_range. If that fails, it opens a raw socket, which needs
// CAP_NET_RAW.
func openPinger(dst netip.Addr) (*pinger, error) {
	for _, raw := range []bool{false, true} {
		p, err := newPinger(dst, raw)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return nil, err
		}
	}
	return nil, errNoPing
}

func newPinger(dst netip.Addr, raw bool) (*pinger, error) {
	domain, proto, kind := unix.AF_INET, unix.IPPROTO_ICMP, unix.SOCK_DGRAM
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(dst.AsSlice())}
	if dst.Is6() {
		domain, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
		to = &unix.SockaddrInet6{Addr: dst.As16()}
	}
	if raw {
		kind = unix.SOCK_RAW
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &pinger{file: os.NewFile(uintptr(fd), "ping socket"), raw: raw, v6: dst.Is6(), id: uint16(rand.Uint32())}, nil
}

// request returns the message to send. The kernel adds the checksum, except for raw
// IPv4 sockets.
func (p *pinger) request(sequence uint16, payload []byte) []byte {
	b := make([]byte, echoSize, echoSize+len(payload))
	b[0] = byte(header.ICMPv4Echo)
	if p.v6 {
		b[0] = byte(header.ICMPv6EchoRequest)
	}
	binary.BigEndian.PutUint16(b[4:], p.id)
	binary.BigEndian.PutUint16(b[6:], sequence)
	b = append(b, payload...)
	if p.raw && !p.v6 {
		binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, 0))
	}
	return b
}

// answer returns the payload of a message that answers the request.
func (p *pinger) answer(b []byte, sequence uint16) ([]byte, bool) {
	want := byte(header.ICMPv4EchoReply)
	if p.v6 {
		want = byte(header.ICMPv6EchoReply)
	} else if p.raw {
		if len(b) < header.IPv4MinimumSize {
			return nil, false
		}
		b = b[min(int(header.IPv4(b).HeaderLength()), len(b)):]
	}
	if len(b) < echoSize || b[0] != want || binary.BigEndian.Uint16(b[6:]) != sequence {
		return nil, false
	}
	if p.raw && binary.BigEndian.Uint16(b[4:]) != p.id {
		return nil, false
	}
	return b[echoSize:], true
}
