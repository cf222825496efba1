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
	// maxOpen bounds the open connections of one port, because each has two descriptors.
	// Further ones wait to be accepted.
	maxOpen = 256
	// dialTimeout bounds connecting to a loopback, which answers at once unless the
	// listener's queue is full.
	dialTimeout = 10 * time.Second
	// acceptDelay is the pause after a failed accept.
	acceptDelay = 20 * time.Millisecond
	// settleTime bounds the wait for connections that are not accepted yet. While too many
	// are open, none is accepted.
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

// dial connects to the server at one address of its loopback.
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

// A passage is one connection or UDP flow of a port.
type passage struct {
	*egress.Record
	ports *Ports
	route *route
}

// begin starts the record of a connection, before any data of it reaches the sandbox.
func (p *Ports) begin(w *route, client netip.Addr) *passage {
	c := plan.Connection{
		Protocol: w.protocol(), Allowed: true, Rule: w.rule, Subject: w.port.String(),
		Direction: "publish", Addr: client, Port: w.target,
	}
	if w.outward {
		c.Direction, c.Addr = "forward", loopbacks(w.target)[0].Addr()
	}
	return &passage{egress.NewRecord(p.ctx, c, p.begun, p.record, drainTime), p, w}
}

// findOwner starts the search for the process that has the socket with these ends.
func (c *passage) findOwner(local, remote net.Addr) {
	c.FindOwner(c.ports.inside.Owner, egress.AddrPortOf(local), egress.AddrPortOf(remote))
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
			c := p.begin(&w, egress.AddrPortOf(client.RemoteAddr()).Addr())
			q.taking.Store(false)
			p.work.Go(func() {
				flushed := sync.OnceFunc(func() {
					c.Flushed()
					p.flushing.Done()
				})
				defer func() { <-slots }()
				defer flushed()
				c.carry(client, flushed)
			})
		}
	})
}

// takeSlot waits until one more connection may be open. When the service ends, it does
// not wait.
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

// carry connects a client to the server and copies in both directions until the
// connection ends. It calls flushed when all data has left the sandbox.
func (c *passage) carry(client *net.TCPConn, flushed func()) {
	if !c.ports.keep(client) {
		c.fail(client, net.ErrClosed)
		return
	}
	if c.route.outward {
		c.findOwner(client.RemoteAddr(), client.LocalAddr())
	}
	server, err := c.dialServer()
	if c.route.outward {
		c.AwaitOwner() // before the client gets its answer and may end
	}
	if err != nil {
		c.fail(client, err)
		return
	}
	inside, outside := server, client
	if c.route.outward {
		inside, outside = client, server
		c.Addr = egress.AddrPortOf(server.RemoteAddr()).Addr()
	} else {
		c.findOwner(server.RemoteAddr(), server.LocalAddr())
	}
	c.relay(inside, outside, flushed)
	c.Finish("")
}

// dialServer connects to the server. It tries the second loopback address if nothing
// listens on the first: many servers listen on "localhost", which may mean either.
func (c *passage) dialServer() (_ *net.TCPConn, first error) {
	for _, addr := range loopbacks(c.route.target) {
		conn, err := c.ports.dial(c.Ctx, c.route, addr)
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

// fail records why the server could not be reached, and resets the client, which is
// already connected.
func (c *passage) fail(client *net.TCPConn, err error) {
	_ = client.SetLinger(0)
	c.ports.drop(client)
	c.Finish(cause(err))
}

// cause returns the text of an error without the addresses, which are in the record.
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

// relay copies in both directions until both have ended. The end of one direction is
// passed on while the other continues; a reset ends both.
func (c *passage) relay(inside, outside *net.TCPConn, flushed func()) {
	defer context.AfterFunc(c.Ctx, func() {
		inside.Close()
		outside.Close()
	})()
	var both sync.WaitGroup
	both.Go(func() {
		c.Count(pump(outside, inside), 0)
		flushed()
	})
	both.Go(func() { c.Count(0, pump(inside, outside)) })
	both.Wait()
	c.ports.drop(inside)
	c.ports.drop(outside)
}

// pump copies one direction. Between two TCP connections the kernel moves the bytes
// (splice), so they never enter this process.
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

// A queue contains the connections that wait to be accepted by a listener. A client
// inside can connect, write and end before its connection is accepted here.
type queue struct {
	listener *net.TCPListener
	// file is a second descriptor of the listener. It allows waiting for a connection
	// without accepting it, which Go's listener does not. It is nil for a published port,
	// because nobody inside can connect there.
	file *os.File
	raw  syscall.RawConn
	// taking is true from the moment a connection leaves the queue until it has a passage.
	taking atomic.Bool
}

// watchQueue makes the queue of a listener inside, so that Settle can wait for it.
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

// setDeadline bounds the wait for new connections.
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
	_ = q.raw.Control(func(fd uintptr) { waits = readable(fd) }) // a closed queue is empty
	return !waits && !q.taking.Load()
}

// Settle waits until every connection that was made so far has a record, within a time
// limit.
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
