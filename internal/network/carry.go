package network

import (
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
	"github.com/cloche-dev/cloche/plan"
)

const (
	// maxOpen bounds the open connections of one port: each has two descriptors.
	// More of them wait to be accepted.
	maxOpen = 256
	// dialTimeout bounds connecting to a loopback, which answers at once unless the
	// queue of its listener is full.
	dialTimeout = 10 * time.Second
	// acceptDelay is the pause after an accept that failed.
	acceptDelay = 20 * time.Millisecond
	// settleTime bounds the wait for connections that are made but not accepted:
	// they stay so while too many are open.
	settleTime = time.Second
	// settleStep is the pause between two checks.
	settleStep = 100 * time.Microsecond
)

// A route is where the connections of one port go.
type route struct {
	rule    string
	port    plan.Port
	target  int  // the port of the server, on the other loopback
	outward bool // the client is inside: the port is forwarded
}

func (w *route) protocol() string {
	if w.port.Protocol == "udp" {
		return "udp"
	}
	return "tcp"
}

// dial connects to the server by an address of its loopback.
func (p *Ports) dial(ctx context.Context, w *route, to netip.AddrPort) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	switch {
	case w.outward:
		conn, err = (&net.Dialer{}).DialContext(ctx, w.protocol(), to.String())
	case w.protocol() == "udp":
		conn, err = p.inside.DialUDP(ctx, to)
	default:
		conn, err = p.inside.DialTCP(ctx, to)
	}
	if err == nil && !p.keep(conn) {
		err = net.ErrClosed
	}
	return conn, err
}

// A passage is one connection or UDP flow of a port: its record and its end.
type passage struct {
	plan.Connection
	ports *Ports
	route *route
	track egress.Track // optional
	// ctx ends with the connection, and ends it.
	ctx    context.Context
	cancel context.CancelFunc
	// flushed is called when all data has left the sandbox. It closes left.
	flushed func()
	left    chan struct{}
}

// begin starts the record of a connection, before any of it reaches the sandbox.
func (p *Ports) begin(w *route, client netip.Addr) *passage {
	c := &passage{ports: p, route: w, left: make(chan struct{})}
	c.Connection = plan.Connection{
		Start: time.Now(), Protocol: w.protocol(), Allowed: true, Rule: w.rule, Subject: w.port.String(),
		Direction: "publish", Addr: client, Port: w.target,
	}
	if w.outward {
		c.Direction, c.Addr = "forward", loopbacks(w.target)[0].Addr()
	}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	c.flushed = sync.OnceFunc(func() { close(c.left) })
	if p.begun != nil {
		c.track = p.begun(c.end)
	}
	return c
}

// end lets out the data that is on its way, and ends the connection.
func (c *passage) end() {
	select {
	case <-c.left:
	case <-c.ctx.Done():
	case <-time.After(drainTime):
	}
	c.cancel()
}

// findOwner starts the search for the process that has the socket with these ends.
// The returned function waits for the result and records it.
func (c *passage) findOwner(local, remote net.Addr) (wait func()) {
	var pid int
	var program string
	done := make(chan struct{})
	c.ports.work.Go(func() {
		defer close(done)
		pid, program = c.ports.inside.Owner(c.Protocol, addrPortOf(local), addrPortOf(remote))
		if c.track != nil {
			c.track.Owned(pid)
		}
	})
	return func() {
		<-done
		c.Pid, c.Program = pid, program
	}
}

// finish writes the record.
func (c *passage) finish() {
	c.cancel()
	c.Duration = time.Since(c.Start)
	if c.track != nil {
		c.track.Ended(c.Connection)
		return
	}
	c.ports.record(c.Connection)
}

// carryTCP accepts the connections of a listener and carries each.
func (p *Ports) carryTCP(q *queue, w route) {
	slots := make(chan struct{}, maxOpen)
	p.accept(q.setDeadline, func() {
		for p.takeSlot(slots) {
			client, err := q.accept()
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if err != nil { // too many open files, or the client is gone
				<-slots
				select {
				case <-time.After(acceptDelay):
				case <-p.ending:
				}
				continue
			}
			p.flushing.Add(1)
			c := p.begin(&w, addrPortOf(client.RemoteAddr()).Addr())
			flushed := c.flushed
			c.flushed = sync.OnceFunc(func() {
				flushed()
				p.flushing.Done()
			})
			q.taking.Store(false)
			p.work.Go(func() {
				defer func() { <-slots }()
				defer c.flushed()
				c.carry(client)
			})
		}
	})
}

// takeSlot waits until one more connection may be open. At the end it does not wait.
func (p *Ports) takeSlot(slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-p.ending:
		return false
	}
}

// carry connects a client to the server and copies both ways until the connection
// ends.
func (c *passage) carry(client *net.TCPConn) {
	if !c.ports.keep(client) {
		c.fail(client, net.ErrClosed)
		return
	}
	var awaitOwner func()
	if c.route.outward {
		awaitOwner = c.findOwner(client.RemoteAddr(), client.LocalAddr())
	}
	server, err := c.dialServer()
	if c.route.outward {
		awaitOwner() // before the client has what it came for, and ends
	}
	if err != nil {
		c.fail(client, err)
		return
	}
	if c.route.outward {
		c.Addr = addrPortOf(server.RemoteAddr()).Addr()
		c.Sent, c.Received = c.relay(client, server)
	} else {
		awaitOwner = c.findOwner(server.RemoteAddr(), server.LocalAddr())
		c.Sent, c.Received = c.relay(server, client)
		awaitOwner()
	}
	c.finish()
}

// dialServer connects to the server. It tries the second loopback address if nothing
// listens on the first: many servers listen on "localhost", which may be either.
func (c *passage) dialServer() (_ *net.TCPConn, first error) {
	for _, addr := range loopbacks(c.route.target) {
		conn, err := c.ports.dial(c.ctx, c.route, addr)
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, first
}

// fail records why there is no connection, and resets the client: it was connected
// before the server could be tried.
func (c *passage) fail(client *net.TCPConn, err error) {
	c.Error = cause(err)
	_ = client.SetLinger(0)
	c.ports.drop(client)
	c.finish()
}

// cause is the text of an error without the addresses, which the record has.
func cause(err error) string {
	var call *os.SyscallError
	var op *net.OpError
	switch {
	case errors.As(err, &call):
		return call.Error()
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

// relay copies both ways until both ends are done. It returns the bytes that left the
// sandbox and those that came in. The end of one direction is passed on while the
// other continues; a reset ends both.
func (c *passage) relay(inside, outside *net.TCPConn) (sent, received int64) {
	defer context.AfterFunc(c.ctx, func() {
		inside.Close()
		outside.Close()
	})()
	var both sync.WaitGroup
	both.Go(func() {
		sent = pump(outside, inside)
		c.flushed()
	})
	both.Go(func() { received = pump(inside, outside) })
	both.Wait()
	c.ports.drop(inside)
	c.ports.drop(outside)
	return sent, received
}

// pump copies one direction. Between two TCP connections the kernel moves the bytes
// (splice), and they never come into this process.
func pump(to, from *net.TCPConn) int64 {
	n, err := to.ReadFrom(from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil && !errors.Is(err, syscall.ENOTCONN) {
		_ = to.SetLinger(0)
		_ = from.SetLinger(0)
		_ = to.Close()
		_ = from.Close()
	}
	return n
}

// addrPortOf is the address of one end of a TCP or UDP socket.
func addrPortOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// A queue is the connections that wait at a listener. A client inside can connect,
// write and end before its connection is accepted here.
type queue struct {
	listener *net.TCPListener
	// file is a second descriptor of the listener: with Go's own, waiting for a
	// connection means accepting it. It is nil for a published port, because nobody
	// inside can connect there.
	file *os.File
	raw  syscall.RawConn
	// taking is true while a connection that left the queue has no passage yet.
	taking atomic.Bool
}

// watchQueue prepares a listener inside for Settle.
func (p *Ports) watchQueue(l *net.TCPListener) (q *queue, err error) {
	q = &queue{listener: l}
	if q.file, err = l.File(); err != nil {
		return nil, err
	}
	p.keep(q.file)
	if q.raw, err = q.file.SyscallConn(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues = append(p.queues, q)
	return q, nil
}

// setDeadline bounds the wait for connections.
func (q *queue) setDeadline(t time.Time) error {
	err := q.listener.SetDeadline(t)
	if q.file != nil {
		err = errors.Join(err, q.file.SetReadDeadline(t))
	}
	return err
}

// accept returns the next connection. It sets taking before the connection leaves the
// queue; the caller clears it.
func (q *queue) accept() (c *net.TCPConn, err error) {
	if q.file != nil {
		err = q.raw.Read(func(fd uintptr) bool {
			q.taking.Store(true)
			if readable(fd) {
				return true
			}
			q.taking.Store(false)
			return false
		})
	}
	if err == nil {
		c, err = q.listener.AcceptTCP()
	}
	if err != nil {
		q.taking.Store(false)
	}
	return c, err
}

// empty reports whether no connection waits or is being accepted.
func (q *queue) empty() bool {
	waits := false
	_ = q.raw.Control(func(fd uintptr) { waits = readable(fd) }) // a closed one has none
	return !waits && !q.taking.Load()
}

// Settle waits until the connections that were made before have a record, within a
// time limit.
func (p *Ports) Settle() {
	p.mu.Lock()
	queues := p.queues
	p.mu.Unlock()
	end := time.Now().Add(settleTime)
	for _, q := range queues {
		for !q.empty() && time.Now().Before(end) {
			time.Sleep(settleStep)
		}
	}
}
