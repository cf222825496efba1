package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// A serverStart is what the first bytes of a server are.
type serverStart int

const (
	startUnknown serverStart = iota
	startOther               // anything but the next
	startRetry               // a HelloRetryRequest: the client has to send a second ClientHello
)

// helloRandomEnd is where the random of a ServerHello ends: behind the heads
// of the record and of the message, and the version.
const helloRandomEnd = 5 + 4 + 2 + 32

// retryRandom is the random by which a ServerHello is a HelloRetryRequest (RFC 8446, 4.1.3).
func retryRandom() []byte {
	return []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")
}

// startOf tells what the first bytes of a server are.
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

// sendTLS carries the client's side of a TLS connection whose ClientHello was judged. A
// server may ask for another ClientHello, and take the name from that one. So
// until the server has answered, no handshake record passes; early data do, and what else
// a client sends without waiting.
func (f *Flow) sendTLS(client net.Conn, first *opening, d *down) error {
	n, err := f.upstream.Write(first.data[:first.hello.size])
	f.sent.Add(int64(n))
	if err != nil {
		return err
	}
	in := newStream(client, first.data[first.hello.size:])
	retry, err := f.awaitServer(in, d)
	if err == nil && retry {
		err = f.sendSecondHello(in, first)
	}
	if err != nil {
		return endOf(err)
	}
	sent, err := in.copyRest(f.upstream)
	f.sent.Add(sent)
	return err
}

// endOf makes the end of the client's side no error.
func endOf(err error) error {
	if isEOF(err) {
		return nil
	}
	return err
}

// awaitServer carries what cannot be a ClientHello until the server's answer is
// known. It reports whether that asks for another ClientHello.
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
		n, err := in.copyLength(f.upstream, 5+int64(head[3])<<8+int64(head[4]))
		f.sent.Add(n)
		if err != nil {
			return false, err
		}
	}
}

// sendSecondHello judges the second ClientHello as the first.
func (f *Flow) sendSecondHello(in *stream, first *opening) error {
	_ = in.conn.SetReadDeadline(time.Now().Add(f.attempt.gate.limits.first))
	var data []byte
	for {
		h, err := readHello(data)
		if err == nil {
			first.hello = h
			err = f.judgeHello(h)
		}
		if err == nil {
			_ = in.conn.SetReadDeadline(time.Time{})
			n, err := f.upstream.Write(data)
			f.sent.Add(int64(n))
			return err
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
