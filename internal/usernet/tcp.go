//go:build linux

package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Bounds of TCP for one sandbox.
const (
	// maxConns is how many connections may be open. More are reset.
	maxConns = 4096
	// maxPending is how many may wait for a decision or for the host. The first
	// packets of more are dropped; the client sends them again.
	maxPending = 512
	// A connection has a buffer of maxBuffer in either direction. One that comes
	// when there are others has its share of bufferBudget, and at least
	// minBuffer. So 2000 connections have 120 MiB in either direction, if
	// programs manage to fill them all.
	maxBuffer    = 1 << 20
	minBuffer    = 32 << 10
	bufferBudget = 16 << 20
)

// conns are the open connections of a sandbox.
type conns struct {
	mu   sync.Mutex
	all  map[*conn]struct{}
	open int // those being opened, too
	shut bool
}

// reserve counts a connection that is about to be opened, and returns the size
// of its buffers; 0 means that there are too many.
func (c *conns) reserve() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut || c.open >= maxConns {
		return 0
	}
	c.open++
	return min(maxBuffer, max(minBuffer, bufferBudget/c.open))
}

func (c *conns) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// add remembers a connection so that it can be ended. It reports whether the
// stack is still open.
func (c *conns) add(conn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return false
	}
	c.all[conn] = struct{}{}
	return true
}

func (c *conns) remove(conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, conn)
}

// abortAll resets all connections; no more can be added.
func (c *conns) abortAll() {
	c.mu.Lock()
	c.shut = true
	var all []*conn
	for conn := range c.all {
		all = append(all, conn)
	}
	c.mu.Unlock()
	for _, conn := range all {
		conn.ep.Abort()
	}
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

// requests are the connections that wait for a decision or for the host, with the
// sequence numbers of their first packets.
type requests struct {
	mu  sync.Mutex
	all map[stack.TransportEndpointID]uint32
}

// begin remembers a request. It reports whether it is new and there is room.
func (r *requests) begin(id stack.TransportEndpointID, sequence uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.all[id]; known || len(r.all) >= maxPending {
		return false
	}
	r.all[id] = sequence
	return true
}

// waiting reports whether a request has not ended, so that its handshake may not be
// complete.
func (r *requests) waiting(id stack.TransportEndpointID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.all[id]
	return known
}

func (r *requests) end(id stack.TransportEndpointID) (sequence uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sequence = r.all[id]
	delete(r.all, id)
	return sequence
}

// handleTCP handles a segment that belongs to no connection: it opens one, or is reset.
func (s *Stack) handleTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	segment := header.TCP(pkt.TransportHeader().Slice())
	if segment.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return false
	}
	if !s.requests.begin(id, segment.SequenceNumber()) {
		return true
	}
	buffer := s.conns.reserve()
	if buffer == 0 {
		s.requests.end(id)
		return false
	}
	if !s.forwarderFor(buffer).HandlePacket(id, pkt) {
		s.conns.release()
		s.requests.end(id)
		return false
	}
	return true
}

// newForwarder returns a forwarder that completes handshakes of connections with
// receive buffers of the size.
func (s *Stack) newForwarder(buffer, pending int) *tcp.Forwarder {
	return tcp.NewForwarder(s.net, buffer, pending, func(r *tcp.ForwarderRequest) { s.forwardTCP(r, buffer) })
}

// forwarderFor returns the forwarder for one connection. The handshake must announce the
// window of its buffer: a buffer that is made smaller later drops data that the client
// was allowed to send.
func (s *Stack) forwarderFor(buffer int) *tcp.Forwarder {
	if buffer == maxBuffer {
		return s.forwarder
	}
	return s.newForwarder(buffer, 1)
}

// forwardTCP opens a connection, in its own goroutine. The handshake is completed when
// the host's connection is open, so that a failure outside is the same failure inside.
func (s *Stack) forwardTCP(r *tcp.ForwarderRequest, buffer int) {
	defer s.conns.release()
	request := &request{ForwarderRequest: r, stack: s, id: r.ID(), buffer: buffer}
	if !s.enter() {
		request.complete(true)
		return
	}
	defer s.work.Done()
	request.client = addrPort(request.id.RemoteAddress, request.id.RemotePort)
	request.dst = addrPort(request.id.LocalAddress, request.id.LocalPort)
	if s.isGateway(request.dst.Addr()) {
		request.complete(true)
		return
	}
	request.open()
}

// A request is the first packet of a connection.
type request struct {
	*tcp.ForwarderRequest
	stack       *Stack
	id          stack.TransportEndpointID
	client, dst netip.AddrPort
	buffer      int
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
		r.buffer = minBuffer // of what is sent: the other's window is announced
		if !r.with(refused.Serve) {
			_ = refused.Close()
		}
	default:
		r.refuse(refused.Err())
	}
}

// with completes the handshake and runs use with the connection. It reports
// false if the client is gone.
func (r *request) with(use func(net.Conn)) bool {
	c := r.handshake()
	if c == nil {
		return false
	}
	defer r.stack.conns.remove(c)
	defer func() { _ = c.Close() }()
	use(c)
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
	c := newConn(ep, &queue, r.dst, r.client, r.buffer)
	if !r.stack.conns.add(c) {
		_ = c.SetLinger(0)
		_ = c.Close()
		return nil
	}
	return c
}

// complete ends the request, with a reset if that is the answer.
func (r *request) complete(reset bool) (sequence uint32) {
	r.Complete(reset)
	return r.stack.requests.end(r.id)
}

// refuse ends the request with the error of the host's connection: a refused one with
// a reset, others with a control message.
func (r *request) refuse(err error) {
	why := noHost
	switch {
	case err == nil, errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, context.Canceled):
		r.complete(true)
		return
	case errors.Is(err, syscall.ENETUNREACH):
		why = noNet
	}
	// The kernel believes a message that repeats the sequence number.
	packet := quote(protoTCP, r.client, r.dst, r.complete(false))
	r.stack.link.writeRaw(controlMessage(packet, why))
}

// acknowledgeFirst delivers a bare acknowledgement before a segment with data, if the
// handshake of the connection is not complete.
//
// It works around a bug of the stack: a segment that completes a handshake and has data
// is queued again, and the connection is charged twice for memory that is released
// once. The receive buffer stays too small, and if it is small anyway, segments out of
// order fill it and the one before them is dropped each time it is sent. This happens to
// ordinary programs: the kernel sends no bare acknowledgement with TCP_QUICKACK off,
// and it is lost when the packet socket is full.
func (e *endpoint) acknowledgeFirst(packet []byte, proto tcpip.NetworkProtocolNumber) {
	if e.opening == nil {
		return
	}
	id, size := segmentWithData(packet, proto)
	if size > 0 && e.opening(id) {
		e.deliver(buffer.NewViewWithData(cutAfter(packet, size, proto)), proto)
	}
}

// segmentWithData returns the connection of a segment that acknowledges and has data,
// and the size of its headers. The size is 0 for all other packets.
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

// cutAfter returns the headers of a packet with a TCP segment as a packet without data
// that does not end the stream.
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
