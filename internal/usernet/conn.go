//go:build linux

package usernet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A conn is a TCP connection of a program inside: a net.Conn with the methods of a
// net.TCPConn that a relay uses. Its local address is the one to which the program
// connected.
type conn struct {
	*gonet.TCPConn
	ep      tcpip.Endpoint
	pieces  *pieces // buffers for copying
	closing sync.Once
	closed  atomic.Bool
	abort   atomic.Bool // Close resets the connection
}

// newConn wraps a connected endpoint. buffer is the size of its buffers.
func newConn(ep tcpip.Endpoint, queue *waiter.Queue, buffer int) *conn {
	return &conn{TCPConn: gonet.NewTCPConn(queue, ep), ep: ep, pieces: piecesFor(buffer)}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	return n, c.kernelError(err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	return n, c.kernelError(err)
}

// Close implements net.Conn. Data that was written is still sent, unless SetLinger(0)
// was called.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		if c.abort.Load() {
			c.ep.Abort()
		} else {
			c.ep.Close()
		}
		_ = c.SetDeadline(time.Unix(1, 0)) // wakes blocked reads and writes
	})
	return nil
}

// SetLinger(0) makes Close reset the connection. Other values change nothing.
func (c *conn) SetLinger(sec int) error {
	c.abort.Store(sec == 0)
	return nil
}

// kernelError returns the error that a connection of the kernel would return, so that
// relays can pass a reset on.
func (c *conn) kernelError(err error) error {
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case c.closed.Load():
		return net.ErrClosed
	case errors.As(err, &op) && op.Timeout():
		return os.ErrDeadlineExceeded
	case op != nil:
		err = op.Err
	}
	// Package gonet keeps only the texts of the stack's errors.
	switch err.Error() {
	case (&tcpip.ErrClosedForReceive{}).String():
		return io.EOF
	case (&tcpip.ErrConnectionReset{}).String():
		return syscall.ECONNRESET
	case (&tcpip.ErrConnectionAborted{}).String():
		return syscall.ECONNABORTED
	case (&tcpip.ErrClosedForSend{}).String():
		return syscall.EPIPE
	case (&tcpip.ErrTimeout{}).String():
		return syscall.ETIMEDOUT
	case (&tcpip.ErrInvalidEndpointState{}).String(), (&tcpip.ErrNotConnected{}).String():
		return net.ErrClosed
	}
	return err
}

// Sizes of the pieces in which data is copied. A connection that waits to write keeps
// one piece for each direction, so if a sandbox has many connections, the pieces are
// small. (Writing segments to a socket without a copy was measured and takes the same
// time, because a piece joins two segments in one call.)
const (
	largePiece = 128 << 10
	smallPiece = 16 << 10
	// fewBuffer is the smallest buffer size of a connection with large pieces.
	fewBuffer = maxBuffer / 4
)

// pieces is a pool of buffers of one size.
type pieces struct {
	size int
	pool sync.Pool
}

var largePieces, smallPieces = &pieces{size: largePiece}, &pieces{size: smallPiece}

// piecesFor returns the pool for a connection with the buffer size.
func piecesFor(buffer int) *pieces {
	if buffer >= fewBuffer {
		return largePieces
	}
	return smallPieces
}

// copy copies what read returns until the end. While await waits for data, no buffer is
// in use. It does not use io.Copy, which would call ReadFrom or WriteTo and end up here
// again.
func (p *pieces) copy(to io.Writer, await func() error, read func([]byte) (int, error)) (done int64, err error) {
	for err == nil {
		if err = await(); err != nil {
			break
		}
		b, ok := p.pool.Get().(*[]byte)
		if !ok {
			fresh := make([]byte, p.size)
			b = &fresh
		}
		var n int
		if n, err = read(*b); n > 0 {
			wrote, failed := to.Write((*b)[:n])
			done += int64(wrote)
			if failed != nil {
				err = failed
			}
		}
		p.pool.Put(b)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return done, err
}

// WriteTo implements io.WriterTo. It waits for one byte, and then reads what is
// available after it.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	var first [1]byte
	await := func() error {
		_, err := c.Read(first[:])
		return err
	}
	return c.pieces.copy(w, await, func(b []byte) (int, error) {
		b[0] = first[0]
		rest := tcpip.SliceWriter(b[1:])
		res, err := c.ep.Read(&rest, tcpip.ReadOptions{})
		if _, none := err.(*tcpip.ErrWouldBlock); err == nil || none {
			return 1 + res.Count, nil
		}
		return 1, c.kernelError(errors.New(err.String())) // the stack reports it only once
	})
}

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	await := func() error { return nil }
	if socket, ok := r.(*net.TCPConn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			await = func() error { return raw.Read(hasData) }
		}
	}
	return c.pieces.copy(c, await, r.Read)
}

// hasData reports whether a read of the socket would return at once. It does not peek,
// because that would clear the socket's error.
func hasData(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err != nil || n > 0
}
