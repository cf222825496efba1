//go:build linux

package usernet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// The pieces in which data is copied. Writing segments to a socket from the buffers
// that they were read into was measured and takes as much time: two segments in one
// call make up for the copy. Where a sandbox has many connections the pieces are
// small: each that is stuck holds one for either direction.
const (
	largePiece = 128 << 10
	smallPiece = 16 << 10
	// fewBuffer is how large the buffers of a connection are where there are few.
	fewBuffer = maxBuffer / 4
)

// pieces are buffers of one size.
type pieces struct {
	size int
	pool sync.Pool
}

var largePieces, smallPieces = &pieces{size: largePiece}, &pieces{size: smallPiece}

// piecesFor are those of a connection with buffers of that size.
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

// readPiece reads a piece. While it waits for data it holds none.
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

// copy copies what next reads, to the end, and puts the pieces back. It is not
// io.Copy, which would ask either side to do it and so come back here.
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

// fillRaw reads pieces from a socket. One that waits for data holds none.
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
