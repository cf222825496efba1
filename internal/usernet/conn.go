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

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A conn is a TCP connection of a program inside: a net.Conn with the other methods of
// a net.TCPConn that a relay uses.
type conn struct {
	ep            tcpip.Endpoint
	queue         *waiter.Queue
	local, remote netip.AddrPort

	readable, writable   chan struct{} // with room for one: something changed
	readEntry            waiter.Entry
	writeEntry           waiter.Entry
	readUntil, sendUntil deadline
	pieces               *pieces // buffers for copying

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

// signal reports a change. It never waits.
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

// await waits for a change if the endpoint would block, and otherwise returns its error.
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

// Close implements net.Conn. Data that was written is still sent, unless SetLinger(0)
// was called.
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

// errorOf turns the stack's errors into those of the kernel, for relays that pass a
// reset on.
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

// A deadline can be moved while others wait for it. The zero value never passes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{} // closed when it has passed; nil until someone needs it
	over  bool
}

// set moves the deadline; the zero time removes it.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	wait := time.Until(t)
	switch {
	case t.IsZero():
		d.reopen()
	case wait <= 0:
		d.expire()
	default:
		d.reopen()
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				d.expire()
			}
		})
		d.timer = timer
	}
}

// reopen undoes a deadline that has passed.
func (d *deadline) reopen() {
	if d.over {
		d.over, d.ch = false, nil
	}
}

func (d *deadline) expire() {
	if d.over {
		return
	}
	d.over = true
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	close(d.ch)
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// channel is closed when the deadline passes.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

// Sizes of the pieces in which data is copied. If a sandbox has many connections, the
// pieces are small: each connection that waits to write has one for either direction.
// (Writing segments to a socket without a copy was measured and takes as much time: two
// segments in one call make up for the copy.)
const (
	largePiece = 128 << 10
	smallPiece = 16 << 10
	// fewBuffer is the least buffer size of a connection with large pieces.
	fewBuffer = maxBuffer / 4
)

// pieces are buffers of one size.
type pieces struct {
	size int
	pool sync.Pool
}

var largePieces, smallPieces = &pieces{size: largePiece}, &pieces{size: smallPiece}

// piecesFor returns the pieces of a connection with buffers of that size.
func piecesFor(buffer int) *pieces {
	if buffer >= fewBuffer {
		return largePieces
	}
	return smallPieces
}

func (p *pieces) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, p.size)
	return &b
}

func (p *pieces) put(b *[]byte) { p.pool.Put(b) }

// WriteTo implements io.WriterTo.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	return c.pieces.copy(w, c.readPiece)
}

// readPiece reads a piece. While it waits for data it has no buffer.
func (c *conn) readPiece() (*[]byte, int, error) {
	for {
		if c.readUntil.passed() {
			return nil, 0, c.fail("read", os.ErrDeadlineExceeded)
		}
		b := c.pieces.get()
		w := tcpip.SliceWriter(*b)
		res, err := c.ep.Read(&w, tcpip.ReadOptions{})
		if err == nil {
			return b, res.Count, nil
		}
		c.pieces.put(b)
		if err := c.await(err, c.readable, &c.readUntil); err != nil {
			return nil, 0, c.fail("read", err)
		}
	}
}

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	if tcp, ok := r.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			return c.pieces.copy(c, c.pieces.fillRaw(raw))
		}
	}
	return c.pieces.copy(c, func() (*[]byte, int, error) { return c.pieces.fill(r) })
}

// copy copies what next reads, to the end, and puts the pieces back. It does not use
// io.Copy, which would call ReadFrom or WriteTo and come back here.
func (p *pieces) copy(to io.Writer, next func() (*[]byte, int, error)) (done int64, err error) {
	for {
		b, n, err := next()
		if n > 0 {
			wrote, failed := to.Write((*b)[:n])
			done += int64(wrote)
			if failed != nil {
				err = failed
			}
		}
		if b != nil {
			p.put(b)
		}
		switch {
		case errors.Is(err, io.EOF):
			return done, nil
		case err != nil:
			return done, err
		}
	}
}

// fill reads a piece.
func (p *pieces) fill(r io.Reader) (*[]byte, int, error) {
	b := p.get()
	n, err := r.Read(*b)
	return b, n, err
}

// fillRaw reads pieces from a socket. While it waits for data it has no buffer.
func (p *pieces) fillRaw(raw syscall.RawConn) func() (*[]byte, int, error) {
	var b *[]byte
	var n int
	var failed error
	try := func(fd uintptr) bool {
		b = p.get()
		n, failed = unix.Read(int(fd), *b)
		for failed == unix.EINTR {
			n, failed = unix.Read(int(fd), *b)
		}
		if failed == unix.EAGAIN {
			p.put(b)
			b = nil
			return false
		}
		return true
	}
	return func() (*[]byte, int, error) {
		b, n, failed = nil, 0, nil
		err := raw.Read(try)
		switch {
		case err != nil:
		case failed != nil:
			n, err = 0, os.NewSyscallError("read", failed)
		case n == 0:
			err = io.EOF
		}
		return b, n, err
	}
}
