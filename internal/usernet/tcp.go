//go:build linux

package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

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
	// maxPending is how many may wait for a verdict or for the host. The first
	// packets of more are dropped and come again.
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

// configureTCP sets the options of TCP on a link that loses nothing and has no
// distance.
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

// requests are the connections that wait for a verdict or for the host, with
// the sequence numbers of their first packets.
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

// waiting reports whether a request has not ended: its handshake, if it has begun,
// may not be complete.
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

// handleTCP handles a segment that belongs to no connection. Others than the
// first of one are reset.
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

// newForwarder makes what completes the handshakes of connections that have
// receive buffers of the size.
func (s *Stack) newForwarder(buffer, pending int) *tcp.Forwarder {
	return tcp.NewForwarder(s.net, buffer, pending, func(r *tcp.ForwarderRequest) { s.forwardTCP(r, buffer) })
}

// forwarderFor returns the forwarder for one connection. The window that the
// handshake announces is already that of its buffer: a buffer that is made smaller
// afterwards drops what the client was told that it may send.
func (s *Stack) forwarderFor(buffer int) *tcp.Forwarder {
	if buffer == maxBuffer {
		return s.forwarder
	}
	return s.newForwarder(buffer, 1)
}

// forwardTCP opens a connection, in a goroutine of its own. The handshake is
// completed once the host's connection is open: what fails, fails inside as it
// did outside.
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

// open judges the request and carries the connection until it ends.
func (r *request) open() {
	flow, refused := r.stack.gate.tcp(r.stack.ctx, r.client, r.dst)
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

// refuse ends the request with the error that the host's connection had: a
// refused one with a reset, others with a control message.
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
