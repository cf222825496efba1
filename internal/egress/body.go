package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// maxChunkLine bounds the line before a chunk, which has its size.
const maxChunkLine = 4 << 10

const errChunkEnd = malformed("a chunk does not end where it says")

// readAhead is how much of a connection is read ahead while it is parsed.
const readAhead = 8 << 10

// copyBuffers are for connections that the kernel cannot splice.
var copyBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// transfer copies until the end of src. Between two sockets of the kernel io.Copy uses
// splice(2), so the bytes never enter this process: an idle connection needs no memory,
// and a busy one an eighth less processor time than with read and write.
func transfer(dst net.Conn, src io.Reader) (int64, error) {
	_, writes := src.(io.WriterTo)
	if _, reads := dst.(io.ReaderFrom); reads || writes {
		return io.Copy(dst, src)
	}
	buffer := copyBuffers.Get().(*[64 << 10]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(dst, src, buffer[:])
}

// A stream is the source of one direction: the bytes that were read ahead, and then the
// connection.
type stream struct {
	conn net.Conn
	buf  *bufio.Reader
}

func newStream(conn net.Conn, ahead []byte) *stream {
	if len(ahead) == 0 {
		return &stream{conn: conn, buf: bufio.NewReaderSize(conn, readAhead)}
	}
	r := io.MultiReader(bytes.NewReader(ahead), conn)
	s := &stream{conn: conn, buf: bufio.NewReaderSize(r, max(readAhead, len(ahead)))}
	// All of ahead has to be in the buffer, because everything after it is read from conn.
	_, _ = s.buf.Peek(len(ahead))
	return s
}

// copyBody forwards a body to dst and returns how many bytes it wrote. It checks the size
// of each chunk, and removes chunk extensions. The trailer of a request is dropped, as a
// proxy may: it would have to be checked.
func (s *stream) copyBody(dst net.Conn, f framing, trailer bool) (int64, error) {
	switch {
	case f.chunked:
		return s.copyChunks(dst, trailer)
	case f.length < 0:
		return s.copyRest(dst)
	}
	return s.copyLength(dst, f.length)
}

// flush writes up to n bytes of those that were read ahead.
func (s *stream) flush(dst net.Conn, n int64) (int64, error) {
	ahead := min(n, int64(s.buf.Buffered()))
	if ahead == 0 {
		return 0, nil
	}
	part, _ := s.buf.Peek(int(ahead))
	written, err := dst.Write(part)
	_, _ = s.buf.Discard(written)
	return int64(written), err
}

func (s *stream) copyLength(dst net.Conn, n int64) (int64, error) {
	done, err := s.flush(dst, n)
	if err != nil || done == n {
		return done, err
	}
	copied, err := transfer(dst, &io.LimitedReader{R: s.conn, N: n - done})
	if done += copied; err == nil && done < n {
		err = io.ErrUnexpectedEOF
	}
	return done, err
}

// copyRest copies until the end of the connection.
func (s *stream) copyRest(dst net.Conn) (int64, error) {
	done, err := s.flush(dst, int64(s.buf.Buffered()))
	if err != nil {
		return done, err
	}
	copied, err := transfer(dst, s.conn)
	return done + copied, err
}

func (s *stream) copyChunks(dst net.Conn, trailer bool) (int64, error) {
	var total int64
	for {
		size, err := s.chunkSize()
		if err != nil {
			return total, err
		}
		if size == 0 {
			break
		}
		n, err := s.copyChunk(dst, size)
		total += n
		if err != nil {
			return total, err
		}
	}
	end, err := s.readTrailer(trailer)
	if err != nil {
		return total, err
	}
	n, err := dst.Write(end)
	return total + int64(n), err
}

// copyChunk forwards one chunk, in one write if it was already read.
func (s *stream) copyChunk(dst net.Conn, size int64) (int64, error) {
	line := append(strconv.AppendInt(nil, size, 16), "\r\n"...)
	if size+2 <= int64(s.buf.Buffered()) {
		part, _ := s.buf.Peek(int(size) + 2)
		if string(part[size:]) != "\r\n" {
			return 0, errChunkEnd
		}
		n, err := dst.Write(append(line, part...))
		_, _ = s.buf.Discard(int(size) + 2)
		return int64(n), err
	}
	n, err := dst.Write(line)
	if err != nil {
		return int64(n), err
	}
	copied, err := s.copyLength(dst, size)
	total := int64(n) + copied
	if err != nil {
		return total, err
	}
	var end [2]byte
	if _, err := io.ReadFull(s.buf, end[:]); err != nil {
		return total, noEOF(err)
	}
	if string(end[:]) != "\r\n" {
		return total, errChunkEnd
	}
	n, err = dst.Write(end[:])
	return total + int64(n), err
}

// chunkSize reads the size of the next chunk.
func (s *stream) chunkSize() (int64, error) {
	left := maxChunkLine
	line, err := readLine(s.buf, &left)
	if err != nil {
		return 0, noEOF(err)
	}
	digits, _, _ := strings.Cut(line, ";")
	digits = strings.TrimRight(digits, " \t")
	if digits == "" || len(digits) > 15 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, malformed("the size of a chunk is no number")
	}
	return strconv.ParseInt(digits, 16, 64)
}

// readTrailer reads the end of a chunked body, and returns the bytes to send for it.
func (s *stream) readTrailer(keep bool) ([]byte, error) {
	end, left := []byte("0\r\n"), maxHead
	for {
		line, err := readLine(s.buf, &left)
		if err != nil {
			return nil, noEOF(err)
		}
		if keep && line != "" {
			end = append(append(end, line...), "\r\n"...)
		}
		if line == "" {
			return append(end, "\r\n"...), nil
		}
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func noEOF(err error) error {
	if isEOF(err) {
		return io.ErrUnexpectedEOF
	}
	return err
}
