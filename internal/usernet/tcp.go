//go:build linux

package usernet

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Limits of TCP for one sandbox.
const (
	// maxConns bounds the open connections. Further ones are reset.
	maxConns = 4096
	// maxPending bounds the connections that wait for a decision or for the host. The first
	// packets of further ones are dropped; the client sends them again.
	maxPending = 512
	// The first connections have buffers of maxBuffer in each direction. Later ones get
	// bufferBudget divided by the number of connections, but at least minBuffer. So 2000
	// connections use 120 MiB in each direction, if programs fill all buffers.
	maxBuffer    = 1 << 20
	minBuffer    = 32 << 10
	bufferBudget = 16 << 20
)

// conns counts the connections of a sandbox.
type conns struct {
	mu   sync.Mutex
	open int // including those that are being opened
	// pending are the connections that wait for a decision or for the host, with the
	// sequence numbers of their first packets.
	pending map[stack.TransportEndpointID]uint32
}

// reserve counts a connection that is about to be opened, and returns the size of its
// buffers, or 0 if there are too many connections. ok is false if the connection is
// already pending, or if too many are.
func (c *conns) reserve(id stack.TransportEndpointID, sequence uint32) (buffer int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.pending[id]
	switch {
	case known || len(c.pending) >= maxPending:
		return 0, false
	case c.open >= maxConns:
		return 0, true
	}
	c.pending[id] = sequence
	c.open++
	return min(maxBuffer, max(minBuffer, bufferBudget/c.open)), true
}

// isPending reports whether the handshake of a connection may still be incomplete.
func (c *conns) isPending(id stack.TransportEndpointID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.pending[id]
	return known
}

// decided removes a connection from pending, and returns the sequence number of its
// first packet.
func (c *conns) decided(id stack.TransportEndpointID) (sequence uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sequence = c.pending[id]
	delete(c.pending, id)
	return sequence
}

// release is called when a connection has ended.
func (c *conns) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// idle reports whether there is no connection.
func (c *conns) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == 0
}

// configureTCP sets the options of TCP for a link without loss and delay.
func configureTCP(s *stack.Stack) error {
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: minBuffer, Default: maxBuffer, Max: maxBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: minBuffer, Default: maxBuffer, Max: maxBuffer}
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	for _, o := range []tcpip.SettableTransportProtocolOption{&receive, &send, &moderate, &wait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return errors.New(err.String())
		}
	}
	return nil
}

// handleTCP handles a segment that belongs to no connection. A SYN opens one; anything
// else is reset.
func (s *Stack) handleTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	segment := header.TCP(pkt.TransportHeader().Slice())
	if segment.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false
	}
	buffer, ok := s.conns.reserve(id, segment.SequenceNumber())
	if !ok || buffer == 0 {
		return !ok
	}
	if !s.forwarderFor(buffer).HandlePacket(id, pkt) {
		s.conns.decided(id)
		s.conns.release()
		return false
	}
	return true
}

// newForwarder returns a forwarder that completes the handshakes of connections whose
// receive buffers have the size.
func (s *Stack) newForwarder(buffer, pending int) *tcp.Forwarder {
	return tcp.NewForwarder(s.net, buffer, pending, func(r *tcp.ForwarderRequest) { s.forwardTCP(r, buffer) })
}

// forwarderFor returns the forwarder for one connection. The handshake has to announce
// the window of the connection's buffer: if the buffer were reduced later, it would drop
// data that the client was allowed to send.
func (s *Stack) forwarderFor(buffer int) *tcp.Forwarder {
	if buffer == maxBuffer {
		return s.forwarder
	}
	return s.newForwarder(buffer, 1)
}

// forwardTCP opens a connection, in its own goroutine. The handshake is completed after
// the host's connection is open, so that a failure outside looks the same inside.
func (s *Stack) forwardTCP(r *tcp.ForwarderRequest, buffer int) {
	defer s.conns.release()
	request := &request{ForwarderRequest: r, stack: s, id: r.ID(), buffer: buffer}
	if !s.enter() {
		request.complete(true)
		return
	}
	defer s.work.Done()
	request.pair = pairOf(request.id)
	if s.isGateway(request.dst.Addr()) {
		request.complete(true)
		return
	}
	request.open()
}

// A request is the first packet of a connection.
type request struct {
	*tcp.ForwarderRequest
	pair
	stack  *Stack
	id     stack.TransportEndpointID
	buffer int
}

// open asks the gate and carries the connection until it ends.
func (r *request) open() {
	flow, refused := r.stack.gate.OpenTCP(r.stack.ctx, r.client, r.dst)
	switch {
	case refused == nil:
		if !r.with(flow.Relay) {
			_ = flow.Close()
		}
	case refused.Answers():
		r.buffer = minBuffer // for sending; the receive window is already announced
		if !r.with(refused.Serve) {
			_ = refused.Close()
		}
	default:
		r.refuse(refused.Err())
	}
}

// with completes the handshake and calls use with the connection. It reports false if
// the client is gone.
func (r *request) with(use func(net.Conn)) bool {
	c := r.handshake()
	if c == nil {
		return false
	}
	use(c)
	_ = c.Close()
	return true
}

func (r *request) handshake() *conn {
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		r.complete(true)
		return nil
	}
	r.complete(false)
	if r.buffer < maxBuffer {
		ep.SocketOptions().SetSendBufferSize(int64(r.buffer), true)
	}
	c := newConn(ep, &queue, r.buffer)
	if r.stack.ctx.Err() != nil { // the stack may no longer be able to reset it
		_ = c.SetLinger(0)
		_ = c.Close()
		return nil
	}
	return c
}

// complete ends the request, and resets the client if reset is true.
func (r *request) complete(reset bool) (sequence uint32) {
	r.Complete(reset)
	return r.stack.conns.decided(r.id)
}

// refuse ends the request with the error of the host's connection: a reset if that was
// refused, otherwise a control message.
func (r *request) refuse(err error) {
	why := noHost
	switch {
	case err == nil, errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, context.Canceled):
		r.complete(true)
		return
	case errors.Is(err, syscall.ENETUNREACH):
		why = noNet
	}
	// The kernel accepts only a message that repeats the sequence number.
	r.stack.unreachable(protoTCP, r.pair, r.complete(false), why)
}

// acknowledgeFirst delivers a bare acknowledgement before a segment with data, if the
// handshake of the connection is not complete.
//
// It works around a bug of the stack. A segment that completes a handshake and has data
// is queued twice: the connection is charged twice for memory that is released once. The
// receive buffer stays too small. If it is small anyway, segments out of order fill it,
// and the missing segment before them is dropped each time it is sent. Ordinary programs
// meet this: with TCP_QUICKACK off the kernel sends no bare acknowledgement, and a bare
// one can be lost when the packet socket is full.
func (e *endpoint) acknowledgeFirst(packet []byte, proto tcpip.NetworkProtocolNumber) {
	if e.opening == nil {
		return
	}
	id, size := segmentWithData(packet, proto)
	if size > 0 && e.opening(id) {
		e.deliver(buffer.NewViewWithData(cutAfter(packet, size, proto)), proto)
	}
}

// segmentWithData returns the connection of a segment that has both an acknowledgement
// and data, and the size of its headers. The size is 0 for all other packets.
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

// cutAfter returns a packet that has only the headers of a TCP segment: no data, and no
// end of the stream.
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
