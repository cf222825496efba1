package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

const (
	// maxOpen bounds the connections of one port that are open at the same time:
	// each has two descriptors. More of them wait to be accepted.
	maxOpen = 256
	// dialTimeout bounds connecting to a loopback, which answers at once unless
	// the queue of its listener is full.
	dialTimeout = 10 * time.Second
	// acceptDelay is the wait after an accept that failed for want of something.
	acceptDelay = 20 * time.Millisecond
)

// carryTCP accepts connections and hands each to serve, with a passage that is
// begun by then.
func (p *Ports) carryTCP(q *queue, rule string, port plan.Port, serve func(*passage, *net.TCPConn)) {
	slots := make(chan struct{}, maxOpen)
	p.drain.accept(q.setDeadline, func() {
		for p.takeSlot(slots) {
			client, err := q.accept()
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if err != nil { // too many open files, or a client that was gone again
				<-slots
				p.sleep(acceptDelay)
				continue
			}
			flushed := p.drain.begin()
			c := p.follow(newRecord(rule, port), flushed)
			q.taken()
			p.work.Go(func() {
				defer func() { <-slots }()
				defer flushed()
				if !p.keep(client) {
					c.failed(client, net.ErrClosed)
					return
				}
				serve(c, client)
			})
		}
	})
}

// takeSlot waits for room for one more connection. At the end nobody waits, but
// what fits is taken.
func (p *Ports) takeSlot(slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-p.drain.ending:
		return false
	}
}

func (p *Ports) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.drain.ending:
	}
}

// servePublished carries a connection from outside to the server inside.
func servePublished(c *passage, port int, client *net.TCPConn) {
	c.Addr, c.Port = addrPortOf(client.RemoteAddr()).Addr(), port
	server, err := c.dial(port, c.ports.inside.DialTCP)
	if err != nil {
		c.failed(client, err)
		return
	}
	owner := c.owner(addrPortOf(server.RemoteAddr()), addrPortOf(server.LocalAddr()))
	c.Sent, c.Received = c.relay(server, client)
	c.Pid, c.Program = owner()
	c.finish()
}

// serveForwarded carries a connection from inside to the host's loopback.
func serveForwarded(c *passage, port int, client *net.TCPConn) {
	c.Addr, c.Port = loopbacks(port)[0].Addr(), port
	owner := c.owner(addrPortOf(client.RemoteAddr()), addrPortOf(client.LocalAddr()))
	server, err := c.dial(port, dialHost)
	c.Pid, c.Program = owner() // before the client has what it came for, and ends
	if err != nil {
		c.failed(client, err)
		return
	}
	c.Addr = addrPortOf(server.RemoteAddr()).Addr()
	c.Sent, c.Received = c.relay(client, server)
	c.finish()
}

func dialHost(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// dial connects to a port of a loopback, by the second address if nothing
// listens on the first: many servers listen on "localhost", which may be either.
func (c *passage) dial(port int, dial func(context.Context, netip.AddrPort) (*net.TCPConn, error)) (conn *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	for _, addr := range loopbacks(port) {
		var e error
		if conn, e = dial(ctx, addr); e == nil {
			if !c.ports.keep(conn) {
				return nil, net.ErrClosed
			}
			return conn, nil
		}
		if err == nil {
			err = e
		}
		if !errors.Is(e, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, err
}

// failed refuses the client and records why. The client sees a reset: it was
// connected before it could be known that there is nobody.
func (c *passage) failed(client *net.TCPConn, err error) {
	c.Error = cause(err)
	_ = client.SetLinger(0)
	c.ports.drop(client)
	c.finish()
}

// cause is an error without the addresses of both ends, which the record has.
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

// relay copies both ways until both ends are done and returns the bytes that left
// the sandbox and that came in. The end of one direction is passed on while the
// other goes on; a reset ends both.
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

// pump copies one direction. Between two TCP connections the kernel moves the
// bytes (splice), and they never come into this process.
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

// addrPortOf is the address of an end of a TCP or UDP socket.
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
