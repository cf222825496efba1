package network

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/internal/egress"
)

const (
	// udpIdle is the time after which a silent flow ends, because UDP has no end of its
	// own. RFC 4787 recommends at least this time.
	udpIdle = 2 * time.Minute
	// maxFlows bounds the flows of one port. A new one replaces the one that was silent
	// longest, so a client that keeps using new ports harms only itself.
	maxFlows = 256
	// maxDatagram is the size of the largest datagram.
	maxDatagram = 65535
	// maxControl is the space for the address to which a datagram was sent.
	maxControl = 128
)

// A flow is the datagrams between one client and the server.
type flow struct {
	client netip.AddrPort
	server atomic.Pointer[net.Conn]
	last   atomic.Int64 // time of the last datagram, in nanoseconds
	there  atomic.Int64 // bytes from the client to the server
	back   atomic.Int64
	// first is the datagram that began the flow, until the server answers. If nothing
	// listens at the server's first address, it is sent again to the second.
	first []byte
	// control makes the kernel send answers from the address to which the client sent, if
	// the socket listens on all addresses.
	control []byte
	ended   chan struct{}

	mu   sync.Mutex
	over time.Time // when the flow ends, unless zero
}

// end ends the flow after the answers that the server has sent so far.
func (f *flow) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = time.Now().Add(lastCall)
	_ = (*f.server.Load()).SetReadDeadline(f.over)
}

// setDeadline bounds the next read from the server. It reports whether the flow ends at
// that time.
func (f *flow) setDeadline(server net.Conn, idle time.Duration) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if over = !f.over.IsZero(); over {
		_ = server.SetReadDeadline(f.over)
	} else {
		_ = server.SetReadDeadline(time.Unix(0, f.last.Load()).Add(idle))
	}
	return over
}

func (f *flow) hasEnded() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

func (f *flow) send(b []byte) {
	f.last.Store(time.Now().UnixNano())
	if n, err := (*f.server.Load()).Write(b); err == nil {
		f.there.Add(int64(n))
	}
}

// A udpPort is a listening socket with its flows. Only its own goroutine uses the
// flows.
type udpPort struct {
	*Ports
	route  route
	listen *net.UDPConn
	flows  map[netip.AddrPort]*flow
}

// carryUDP carries the datagrams that arrive at a socket. Each flow has its own socket
// to the server, so that answers can be assigned to their client.
func (p *Ports) carryUDP(listen *net.UDPConn, w route) {
	u := &udpPort{Ports: p, route: w, listen: listen, flows: map[netip.AddrPort]*flow{}}
	if egress.AddrPortOf(listen.LocalAddr()).Addr().IsUnspecified() {
		askForDestinations(listen)
	}
	p.accept(listen.SetReadDeadline, u.run)
}

func (u *udpPort) run() {
	buf, control := make([]byte, maxDatagram), make([]byte, maxControl)
	for {
		n, size, _, client, err := u.listen.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil { // an ICMP error: a client did not receive an answer
			continue
		}
		f := u.flows[client]
		if f == nil || f.hasEnded() {
			f = u.begin(client, buf[:n], control[:size])
		}
		if f != nil {
			f.send(buf[:n])
		}
	}
}

// begin starts the flow of a client. It returns nil if the server cannot be reached.
func (u *udpPort) begin(client netip.AddrPort, first, control []byte) *flow {
	u.makeRoom()
	f := &flow{client: client, first: bytes.Clone(first), control: bytes.Clone(control), ended: make(chan struct{})}
	f.last.Store(time.Now().UnixNano())
	c := u.Ports.begin(&u.route, client.Addr().Unmap())
	c.Flushed() // there is nothing to flush: answers are handled when the flow ends
	server, err := u.dial(u.ctx, &u.route, loopbacks(u.route.target)[0])
	if err != nil {
		c.Finish(cause(err))
		return nil
	}
	f.server.Store(&server)
	u.flows[client] = f
	u.work.Go(func() { u.carry(f, c) })
	return f
}

// makeRoom removes ended flows if there are too many. If all are open, it ends the one
// that was silent longest.
func (u *udpPort) makeRoom() {
	if len(u.flows) < maxFlows {
		return
	}
	var oldest *flow
	for client, f := range u.flows {
		if f.hasEnded() {
			delete(u.flows, client)
		} else if oldest == nil || f.last.Load() < oldest.last.Load() {
			oldest = f
		}
	}
	if oldest != nil && len(u.flows) >= maxFlows {
		delete(u.flows, oldest.client)
		_ = (*oldest.server.Load()).Close()
	}
}

// carry carries answers to the client until the flow ends, and then records the flow.
func (u *udpPort) carry(f *flow, c *passage) {
	defer close(f.ended)
	defer context.AfterFunc(c.Ctx, f.end)()
	server := *f.server.Load()
	local, remote := server.RemoteAddr(), server.LocalAddr()
	if u.route.outward {
		local, remote = net.UDPAddrFromAddrPort(f.client), u.listen.LocalAddr()
	}
	c.findOwner(local, remote)
	c.AwaitOwner() // before the client gets its answer and may end
	err := u.answer(f, server)
	for _, to := range loopbacks(u.route.target)[1:] {
		if f.first != nil && errors.Is(err, syscall.ECONNREFUSED) {
			err = u.tryNext(f, c, to)
		}
	}
	u.drop(*f.server.Load())
	sent, received := f.back.Load(), f.there.Load()
	if u.route.outward {
		sent, received = received, sent
	}
	c.Count(sent, received)
	failure := ""
	if errors.Is(err, syscall.ECONNREFUSED) {
		failure = cause(err)
	}
	c.Finish(failure)
}

// tryNext begins the flow again with the server's other address.
func (u *udpPort) tryNext(f *flow, c *passage, to netip.AddrPort) error {
	server, err := u.dial(u.ctx, &u.route, to)
	if err != nil {
		return syscall.ECONNREFUSED // the machine has no such address, so nothing listens there
	}
	u.drop(*f.server.Swap(&server))
	if u.route.outward {
		c.Addr = to.Addr()
	}
	f.there.Store(0)
	f.send(f.first)
	return u.answer(f, server)
}

// answer carries answers to the client until the flow ends, and returns why it ended.
func (u *udpPort) answer(f *flow, server net.Conn) error {
	buf := make([]byte, maxDatagram)
	for {
		over := f.setDeadline(server, u.idle)
		n, err := server.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !over && time.Since(time.Unix(0, f.last.Load())) < u.idle:
			continue // the client sent something in the meantime, or the flow is about to end
		case errors.Is(err, syscall.ECONNREFUSED) && f.first == nil:
			continue // the server answered before, and may come back
		case err != nil:
			return err
		}
		f.first = nil
		f.last.Store(time.Now().UnixNano())
		if n, _, err := u.listen.WriteMsgUDPAddrPort(buf[:n], f.control, f.client); err == nil {
			f.back.Add(int64(n))
		}
	}
}
