//go:build linux

package usernet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A conn is a TCP connection of a program inside. It is a net.Conn with what
// else a relay uses of a net.TCPConn.
type conn struct {
	ep            tcpip.Endpoint
	queue         *waiter.Queue
	local, remote netip.AddrPort

	readable, writable   chan struct{} // with room for one: something changed
	readEntry            waiter.Entry
	writeEntry           waiter.Entry
	readUntil, sendUntil deadline
	pieces               *pieces // what data is copied in

	closing sync.Once
	abort   atomic.Bool // Close resets the connection
}

// newConn wraps an endpoint that is connected; local is the address that the
// program inside wanted, and buffer the size of the endpoint's buffers.
func newConn(ep tcpip.Endpoint, queue *waiter.Queue, local, remote netip.AddrPort, buffer int) *conn {
	c := &conn{
		ep: ep, queue: queue, local: local, remote: remote, pieces: piecesFor(buffer),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	c.readEntry = waiter.NewFunctionEntry(waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr, func(waiter.EventMask) { signal(c.readable) })
	c.writeEntry = waiter.NewFunctionEntry(waiter.WritableEvents|waiter.EventHUp|waiter.EventErr, func(waiter.EventMask) { signal(c.writable) })
	queue.EventRegister(&c.readEntry)
	queue.EventRegister(&c.writeEntry)
	return c
}

// signal notes that something changed, without ever waiting.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if c.readUntil.passed() {
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		}
		w := tcpip.SliceWriter(b)
		res, err := c.ep.Read(&w, tcpip.ReadOptions{})
		if err == nil {
			return res.Count, nil
		}
		if err := c.await(err, c.readable, &c.readUntil); err != nil {
			return 0, c.fail("read", err)
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	var payload bytes.Reader
	for done := 0; ; {
		if c.sendUntil.passed() {
			return done, c.fail("write", os.ErrDeadlineExceeded)
		}
		if done == len(b) {
			return done, nil
		}
		payload.Reset(b[done:])
		n, err := c.ep.Write(&payload, tcpip.WriteOptions{})
		done += int(n)
		if err == nil {
			continue
		}
		if err := c.await(err, c.writable, &c.sendUntil); err != nil {
			return done, c.fail("write", err)
		}
	}
}

// await waits for a change if the endpoint said that it would block, and else
// returns its error.
func (c *conn) await(err tcpip.Error, changed <-chan struct{}, until *deadline) error {
	if _, ok := err.(*tcpip.ErrWouldBlock); !ok {
		return errorOf(err)
	}
	select {
	case <-changed:
		return nil
	case <-until.channel():
		return os.ErrDeadlineExceeded
	}
}

// Close implements net.Conn. What was written is still sent, unless
// SetLinger(0) was called.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.queue.EventUnregister(&c.readEntry)
		c.queue.EventUnregister(&c.writeEntry)
		if c.abort.Load() {
			c.ep.Abort()
		} else {
			c.ep.Close()
		}
		past := time.Unix(1, 0)
		c.readUntil.set(past)
		c.sendUntil.set(past)
	})
	return nil
}

// CloseRead stops reading, as net.TCPConn does.
func (c *conn) CloseRead() error { return c.shutdown(tcpip.ShutdownRead) }

// CloseWrite says to the program inside that nothing more comes.
func (c *conn) CloseWrite() error { return c.shutdown(tcpip.ShutdownWrite) }

func (c *conn) shutdown(flags tcpip.ShutdownFlags) error {
	if err := c.ep.Shutdown(flags); err != nil {
		return c.fail("close", errorOf(err))
	}
	return nil
}

// SetLinger makes Close reset the connection if sec is 0. Other values change
// nothing.
func (c *conn) SetLinger(sec int) error {
	c.abort.Store(sec == 0)
	return nil
}

// LocalAddr implements net.Conn: the address that the program connected to.
func (c *conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr implements net.Conn: the address of the program inside.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.readUntil.set(t)
	c.sendUntil.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { c.readUntil.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { c.sendUntil.set(t); return nil }

func (c *conn) fail(op string, err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// errorOf gives the stack's errors the meaning that those of the kernel have,
// for relays that pass a reset on.
func errorOf(err tcpip.Error) error {
	switch err.(type) {
	case *tcpip.ErrClosedForReceive:
		return io.EOF
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrConnectionAborted:
		return syscall.ECONNABORTED
	case *tcpip.ErrClosedForSend:
		return syscall.EPIPE
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrInvalidEndpointState, *tcpip.ErrNotConnected:
		return net.ErrClosed
	}
	return errors.New(err.String())
}
