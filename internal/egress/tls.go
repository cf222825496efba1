package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// maxHello bounds a ClientHello together with the headers of its records. Those of
// today's programs are smaller than 2 KiB, including post-quantum keys.
const maxHello = 32 << 10

// The parts of TLS that a ClientHello is made of (RFC 8446, 4.1.2 and 5.1).
const (
	recordHandshake  = 22
	recordAlert      = 21
	recordFirst      = 20
	recordLast       = 24
	maxRecord        = 1 << 14
	helloClient      = 1
	helloServer      = 2
	extServerName    = 0
	extECH           = 0xfe0d // RFC 9849
	extESNI          = 0xffce // the drafts of ECH
	alertDenied      = 49
	nameTypeHostName = 0
)

const (
	// errMore says that the message is not complete yet.
	errMore  = failure("the message is not complete")
	errHello = failure("the TLS ClientHello is malformed")
)

// A hello is the part of a ClientHello that is checked.
type hello struct {
	// serverName is the plain name, as it was sent, or "".
	serverName string
	// hidden says that the real name may be encrypted (ECH). A client may also send the
	// extension without a meaning (GREASE), which only the server can tell.
	hidden bool
	// size is the number of bytes of the ClientHello, with the headers of its records.
	size int
}

// looksLikeTLS reports whether some server would read the first bytes of a connection as
// TLS. Anything but a plain ClientHello is refused afterwards: Go's servers accept a
// record of a version that never existed, and skip warnings before it. more is set if
// there are too few bytes to decide.
func looksLikeTLS(b []byte) (is, more bool) {
	const head = 6 // the header of a record, and the first byte of its content
	switch {
	case len(b) == 0 || !isRecord(b[0]):
		return false, false
	case len(b) == 1:
		return false, true
	case b[1] == 3:
		return true, false
	case b[0] != recordHandshake && b[0] != recordAlert:
		return false, false
	case len(b) < head:
		return false, true
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	return b[0] == recordHandshake && b[5] == helloClient && size > 0 && size <= maxRecord || b[0] == recordAlert && size == 2, false
}

// isRecord reports whether a byte is a type of record.
func isRecord(c byte) bool { return c >= recordFirst && c <= recordLast }

// readHello parses a ClientHello from the first bytes of a connection. It may be split
// into several records. errMore means that more bytes are needed. Anything but exactly
// one ClientHello is an error, because a server might read another one from it.
func readHello(b []byte) (hello, error) {
	message, size, err := handshakeMessage(b)
	if err != nil {
		return hello{}, err
	}
	h, err := parseHello(message)
	if err != nil {
		return hello{}, err
	}
	h.size = size
	return h, nil
}

// handshakeMessage joins the records of the first handshake message, and returns their
// size.
func handshakeMessage(b []byte) (message []byte, size int, err error) {
	all := len(b)
	for {
		if len(b) < 5 {
			return nil, 0, errMore
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != recordHandshake || b[1] != 3 || size == 0 || size > maxRecord {
			return nil, 0, errHello
		}
		part := b[5:min(len(b), 5+size)]
		message = append(message, part...)
		if len(message) >= 4 {
			want := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
			switch {
			case message[0] != helloClient || want > maxHello || len(message) > want:
				return nil, 0, errHello
			case len(message) == want && len(part) == size:
				return message[4:], all - len(b) + 5 + size, nil
			}
		} else if len(message) > 0 && message[0] != helloClient {
			return nil, 0, errHello
		}
		if len(part) < size {
			return nil, 0, errMore
		}
		b = b[5+size:]
	}
}

// parseHello reads the body of a ClientHello.
func parseHello(b []byte) (hello, error) {
	var h hello
	c := cursor{rest: b}
	c.skip(2 + 32)          // version, random
	c.skip(int(c.uint8()))  // session
	c.skip(int(c.uint16())) // ciphers
	c.skip(int(c.uint8()))  // compression
	if c.failed {
		return h, errHello
	}
	if len(c.rest) == 0 {
		return h, nil // before TLS 1.2 there need be no extensions
	}
	extensions := c.sub(int(c.uint16()))
	if c.failed || len(c.rest) != 0 {
		return h, errHello
	}
	seen := false
	for len(extensions.rest) > 0 && !extensions.failed {
		kind := extensions.uint16()
		body := extensions.sub(int(extensions.uint16()))
		switch kind {
		case extServerName:
			if seen {
				return h, errHello
			}
			seen = true
			name, ok := parseServerName(body)
			if !ok {
				return h, errHello
			}
			h.serverName = name
		case extECH, extESNI:
			h.hidden = true
		}
	}
	if extensions.failed {
		return h, errHello
	}
	return h, nil
}

// parseServerName reads the extension. Its list may have one name of each type, and only
// one type is defined.
func parseServerName(c cursor) (string, bool) {
	list := c.sub(int(c.uint16()))
	kind := list.uint8()
	name := list.sub(int(list.uint16()))
	ok := !c.failed && !list.failed && len(c.rest) == 0 && len(list.rest) == 0
	return string(name.rest), ok && kind == nameTypeHostName && len(name.rest) > 0
}

// A cursor reads big-endian numbers and byte strings. A read past the end sets failed;
// from then on all reads return zeros.
type cursor struct {
	rest   []byte
	failed bool
}

func (c *cursor) take(n int) []byte {
	if c.failed || n > len(c.rest) {
		c.failed, c.rest = true, nil
		return nil
	}
	part := c.rest[:n]
	c.rest = c.rest[n:]
	return part
}

func (c *cursor) skip(n int) { c.take(n) }

func (c *cursor) uint8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) sub(n int) cursor {
	part := c.take(n)
	return cursor{rest: part, failed: c.failed}
}

// deniedAlert is the fatal alert access_denied in a record of its own.
func deniedAlert() []byte { return []byte{recordAlert, 3, 3, 0, 2, 2, alertDenied} }

// A serverStart is the kind of a server's first bytes.
type serverStart int

const (
	startUnknown serverStart = iota
	startOther               // anything but the next
	startRetry               // a HelloRetryRequest: the client has to send a second ClientHello
)

// helloRandomEnd is where the random value of a ServerHello ends: after the headers of
// the record and of the message, and the version.
const helloRandomEnd = 5 + 4 + 2 + 32

// retryRandom is the random value that marks a ServerHello as a HelloRetryRequest (RFC 8446,
// 4.1.3).
func retryRandom() []byte {
	return []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")
}

// startOf returns the kind of a server's first bytes.
func startOf(b []byte) serverStart {
	switch {
	case b[0] != recordHandshake || len(b) > 5 && b[5] != helloServer:
		return startOther
	case len(b) < helloRandomEnd:
		return startUnknown
	case bytes.Equal(b[helloRandomEnd-32:helloRandomEnd], retryRandom()):
		return startRetry
	}
	return startOther
}

// sendTLS sends the client's side of a TLS connection whose ClientHello was checked. The
// server may ask for a second ClientHello and use the name in that one. So until the
// server has answered, no handshake record passes; early data and other records do.
func (f *Flow) sendTLS(client net.Conn, first *opening, d *down) error {
	if err := f.send(first.data[:first.hello.size]); err != nil {
		return err
	}
	in := newStream(client, first.data[first.hello.size:])
	retry, err := f.awaitServer(in, d)
	if err == nil && retry {
		err = f.sendSecondHello(in, first)
	}
	if err != nil {
		return ignoreEOF(err)
	}
	return f.countSent(in.copyRest(f.upstream))
}

// ignoreEOF returns nil for the end of the client's side.
func ignoreEOF(err error) error {
	if isEOF(err) {
		return nil
	}
	return err
}

// awaitServer sends records other than handshake records until the server has answered.
// It reports whether the server asks for a second ClientHello.
func (f *Flow) awaitServer(in *stream, d *down) (retry bool, err error) {
	start := startUnknown
	for {
		head, err := in.buf.Peek(5)
		if start == startUnknown {
			select {
			case start = <-d.start:
			default:
			}
		}
		switch {
		case start == startOther:
			return false, nil
		case len(head) > 0 && head[0] == recordHandshake:
			if start == startUnknown {
				start = <-d.start
			}
			return start == startRetry, nil
		case err != nil:
			return false, err
		}
		if err := f.countSent(in.copyLength(f.upstream, 5+int64(head[3])<<8+int64(head[4]))); err != nil {
			return false, err
		}
	}
}

// sendSecondHello checks the second ClientHello like the first, and sends it.
func (f *Flow) sendSecondHello(in *stream, first *opening) error {
	_ = in.conn.SetReadDeadline(time.Now().Add(f.attempt.gate.limits.first))
	var data []byte
	for {
		h, err := readHello(data)
		if err == nil {
			first.hello = h
			err = f.attempt.judgeUninspected(h)
		}
		if err == nil {
			_ = in.conn.SetReadDeadline(time.Time{})
			return f.send(data)
		}
		if !errors.Is(err, errMore) {
			return err
		}
		record, err := readRecord(in.buf)
		if err != nil {
			return err
		}
		if data = append(data, record...); len(data) > maxHello {
			return errHello
		}
	}
}

// readRecord reads a handshake record.
func readRecord(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[3:]))
	if head[0] != recordHandshake || size > maxRecord {
		return nil, errHello
	}
	head = append(head, make([]byte, size)...)
	_, err := io.ReadFull(r, head[5:])
	return head, err
}
