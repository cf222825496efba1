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

	"github.com/cloche-dev/cloche/plan"
)

const (
	// udpIdle ends a flow of which nothing was heard: UDP has no end of its own.
	// It is the time that RFC 4787 recommends at least, less for what is local.
	udpIdle = 2 * time.Minute
	// maxFlows bounds the flows of one port. A new one ends the one that was idle
	// longest, so that a client which uses ever new ports harms only itself.
	maxFlows = 256
	// maxDatagram is the largest datagram there is.
	maxDatagram = 65535
	// maxControl is room for the address that a datagram was sent to.
	maxControl = 128
)

// flowKind says how the flows of one port are carried.
type flowKind struct {
	record func(client netip.AddrPort) plan.Connection
	// dial makes a socket to the server by an address of its loopback.
	dial func(context.Context, netip.AddrPort) (*net.UDPConn, error)
	// servers are the addresses to try, one after the other.
	servers []netip.AddrPort
	// outward: the client is inside.
	outward bool
	// owner are the ends of the socket inside.
	owner func(client netip.AddrPort, server *net.UDPConn) (local, remote netip.AddrPort)
}

func (p *Ports) publishedFlow(rule plan.Port) flowKind {
	return flowKind{
		record: func(client netip.AddrPort) plan.Connection {
			c := newRecord(rulePublish, rule)
			c.Addr, c.Port = client.Addr().Unmap(), rule.Inside
			return c
		},
		dial:    p.inside.DialUDP,
		servers: loopbacks(rule.Inside),
		owner: func(_ netip.AddrPort, server *net.UDPConn) (local, remote netip.AddrPort) {
			return addrPortOf(server.RemoteAddr()), addrPortOf(server.LocalAddr())
		},
	}
}

func (p *Ports) forwardedFlow(rule plan.Port, listener netip.AddrPort) flowKind {
	return flowKind{
		record: func(netip.AddrPort) plan.Connection {
			c := newRecord(ruleForward, rule)
			c.Addr, c.Port = loopbacks(rule.Host)[0].Addr(), rule.Host
			return c
		},
		dial:    dialHostUDP,
		servers: loopbacks(rule.Host),
		outward: true,
		owner: func(client netip.AddrPort, _ *net.UDPConn) (local, remote netip.AddrPort) {
			return client, listener
		},
	}
}

func dialHostUDP(_ context.Context, to netip.AddrPort) (*net.UDPConn, error) {
	return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
}

// A flow is what one client exchanges with the server.
type flow struct {
	client netip.AddrPort
	server atomic.Pointer[net.UDPConn]
	last   atomic.Int64 // when a datagram was seen, in nanoseconds
	there  atomic.Int64 // bytes from the client to the server
	back   atomic.Int64
	// first is the datagram that began it, until the server is known to be
	// there: it is sent once more to the server's other address.
	first []byte
	// control makes answers leave from the address that the client called, where
	// the socket listens on all of them.
	control []byte
	ended   chan struct{}

	mu   sync.Mutex
	over time.Time // unless zero, when the flow ends
}

// end makes the flow end with what the server has said by now.
func (f *flow) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = time.Now().Add(lastCall)
	_ = f.server.Load().SetReadDeadline(f.over)
}

// setDeadline sets how long the server is listened to, and reports whether the
// flow ends then.
func (f *flow) setDeadline(server *net.UDPConn, idle time.Duration) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if over = !f.over.IsZero(); over {
		_ = server.SetReadDeadline(f.over)
	} else {
		_ = server.SetReadDeadline(time.Unix(0, f.last.Load()).Add(idle))
	}
	return over
}

// A udpPort is a listening socket with its flows, which only its own goroutine
// touches.
type udpPort struct {
	*Ports
	kind   flowKind
	listen *net.UDPConn
	flows  map[netip.AddrPort]*flow
}

// carryUDP carries the datagrams that arrive at a socket, each flow by a socket
// of its own, so that answers find their way back.
func (p *Ports) carryUDP(listen *net.UDPConn, kind flowKind) {
	u := &udpPort{Ports: p, kind: kind, listen: listen, flows: map[netip.AddrPort]*flow{}}
	if addrPortOf(listen.LocalAddr()).Addr().IsUnspecified() {
		askForDestinations(listen)
	}
	p.drain.accept(listen.SetReadDeadline, u.run)
}

func (u *udpPort) run() {
	buf, control := make([]byte, maxDatagram), make([]byte, maxControl)
	for {
		n, size, _, client, err := u.listen.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil { // an answer that a client did not want any more
			continue
		}
		if f := u.flowOf(client, buf[:n], control[:size]); f != nil {
			f.send(buf[:n])
		}
	}
}

func (f *flow) send(b []byte) {
	f.last.Store(time.Now().UnixNano())
	if n, err := f.server.Load().Write(b); err == nil {
		f.there.Add(int64(n))
	}
}

// flowOf finds the flow of a client, or begins one.
func (u *udpPort) flowOf(client netip.AddrPort, first, control []byte) *flow {
	if f := u.flows[client]; f != nil {
		select {
		case <-f.ended:
		default:
			return f
		}
	}
	u.forget()
	f := &flow{client: client, first: bytes.Clone(first), control: bytes.Clone(control), ended: make(chan struct{})}
	f.last.Store(time.Now().UnixNano())
	c := u.follow(u.kind.record(client), nil)
	c.flushed() // the server's answers are let out below
	server, err := u.dialFlow(u.kind.servers[0])
	if err != nil {
		c.Error = cause(err)
		c.finish()
		return nil
	}
	f.server.Store(server)
	u.flows[client] = f
	u.work.Go(func() { u.answers(f, c) })
	return f
}

func (u *udpPort) dialFlow(to netip.AddrPort) (*net.UDPConn, error) {
	ctx, cancel := context.WithTimeout(u.ctx, dialTimeout)
	defer cancel()
	server, err := u.kind.dial(ctx, to)
	if err == nil && !u.keep(server) {
		err = net.ErrClosed
	}
	return server, err
}

// forget drops flows that have ended, and ends the one that was idle longest
// where there are too many.
func (u *udpPort) forget() {
	if len(u.flows) < maxFlows {
		return
	}
	var oldest *flow
	for client, f := range u.flows {
		select {
		case <-f.ended:
			delete(u.flows, client)
			continue
		default:
		}
		if oldest == nil || f.last.Load() < oldest.last.Load() {
			oldest = f
		}
	}
	if oldest != nil && len(u.flows) >= maxFlows {
		delete(u.flows, oldest.client)
		_ = oldest.server.Load().Close()
	}
}

// answers carries what the server says back to the client until the flow is
// idle, and records it.
func (u *udpPort) answers(f *flow, c *passage) {
	defer close(f.ended)
	defer context.AfterFunc(c.ctx, f.end)()
	local, remote := u.kind.owner(f.client, f.server.Load())
	c.Pid, c.Program = c.owner(local, remote)() // before a client has its answer, and ends
	err := u.answer(f, f.server.Load())
	for i := 1; i < len(u.kind.servers) && errors.Is(err, syscall.ECONNREFUSED) && f.first != nil; i++ {
		err = u.elsewhere(f, c, u.kind.servers[i])
	}
	u.drop(f.server.Load())
	if errors.Is(err, syscall.ECONNREFUSED) {
		c.Error = cause(err)
	}
	c.Received, c.Sent = f.there.Load(), f.back.Load()
	if u.kind.outward {
		c.Received, c.Sent = c.Sent, c.Received
	}
	c.finish()
}

// elsewhere goes on with another address of the server, from the first datagram
// on.
func (u *udpPort) elsewhere(f *flow, c *passage, to netip.AddrPort) error {
	server, err := u.dialFlow(to)
	if err != nil {
		return syscall.ECONNREFUSED // there is no such address: nobody listens there
	}
	u.drop(f.server.Swap(server))
	if u.kind.outward {
		c.Addr = to.Addr()
	}
	f.there.Store(0)
	f.send(f.first)
	return u.answer(f, server)
}

// answer carries answers until the flow ends, and returns why it did.
func (u *udpPort) answer(f *flow, server *net.UDPConn) error {
	buf := make([]byte, maxDatagram)
	for {
		over := f.setDeadline(server, u.idle)
		n, err := server.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !over && time.Since(time.Unix(0, f.last.Load())) < u.idle:
			continue // the client spoke meanwhile, or the flow is to end
		case errors.Is(err, syscall.ECONNREFUSED) && f.first == nil:
			continue // the server was there before, and may be again
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
