package inspect

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// A tunnel is a connection to a server after both sides have switched to another
// protocol.
type tunnel struct {
	io.ReadWriteCloser
	read           io.Reader
	guard          func([]byte) error
	sent, received *atomic.Int64
}

// tunnel lets the client and the server go on in another protocol, which is searched in
// both directions.
func (x *exchange) tunnel(res *http.Response, search *matcher) error {
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return errors.New("the server switches to another protocol, and its connection cannot be written to")
	}
	t := &tunnel{ReadWriteCloser: conn, read: conn, sent: &x.sent, received: &x.received}
	if search != nil {
		t.read = &filter{src: conn, matcher: search}
	}
	if x.secrets {
		t.guard = x.tunnelGuard(strings.EqualFold(res.Header.Get("Upgrade"), "websocket"))
	}
	res.Body = t
	return nil
}

func (t *tunnel) Read(b []byte) (int, error) {
	n, err := t.read.Read(b)
	t.received.Add(int64(n))
	return n, err
}

func (t *tunnel) Write(b []byte) (int, error) {
	if t.guard != nil {
		if err := t.guard(b); err != nil {
			return 0, err
		}
	}
	n, err := t.ReadWriteCloser.Write(b)
	t.sent.Add(int64(n))
	return n, err
}

// tunnelGuard returns a function that searches what the client sends. It fails before a
// placeholder is complete.
func (x *exchange) tunnelGuard(websocket bool) func([]byte) error {
	m := x.inspector.guard
	where := "data after an upgrade"
	frames := new(frameReader)
	if websocket {
		where = "a WebSocket message"
	}
	// The ends of what was sent, of control frames apart: they may stand between the parts
	// of a message.
	var tail [2][]byte
	return func(b []byte) error {
		fresh := [2][]byte{0: b}
		if websocket {
			fresh = frames.payload(b)
		}
		for n := range tail {
			tail[n] = append(tail[n], fresh[n]...)
			if _, which := m.find(tail[n], 0); which >= 0 {
				d := x.misused(m.patterns[which].of, where)
				x.abort(d)
				return d
			}
			if extra := len(tail[n]) - m.max + 1; extra > 0 {
				tail[n] = append(tail[n][:0], tail[n][extra:]...)
			}
		}
		return nil
	}
}

// A frameReader takes the payload out of the frames of a WebSocket's client (RFC 6455,
// 5.2).
type frameReader struct {
	head    []byte
	left    uint64 // of the payload
	key     [4]byte
	masked  bool
	control bool
	at      int // position in the payload, for the mask
}

// payload returns the unmasked payload in b: that of messages, and that of control frames.
func (f *frameReader) payload(b []byte) (out [2][]byte) {
	for len(b) > 0 {
		if f.left == 0 {
			f.head, b = append(f.head, b[0]), b[1:]
			f.begin()
			continue
		}
		n := int(min(uint64(len(b)), f.left))
		kind := 0
		if f.control {
			kind = 1
		}
		for _, c := range b[:n] {
			if f.masked {
				c ^= f.key[f.at%4]
			}
			f.at++
			out[kind] = append(out[kind], c)
		}
		f.left -= uint64(n)
		b = b[n:]
	}
	return out
}

// begin begins a payload if the header of its frame is complete.
func (f *frameReader) begin() {
	if len(f.head) < 2 {
		return
	}
	size := uint64(f.head[1] & 0x7f)
	more := map[uint64]int{126: 2, 127: 8}[size]
	f.masked = f.head[1]&0x80 != 0
	want := 2 + more
	if f.masked {
		want += 4
	}
	if len(f.head) < want {
		return
	}
	if more > 0 {
		size = 0
		for _, c := range f.head[2 : 2+more] {
			size = size<<8 | uint64(c)
		}
	}
	if f.masked {
		f.key = [4]byte(f.head[want-4:])
	}
	f.control = f.head[0]&0x08 != 0
	f.left, f.at, f.head = size, 0, f.head[:0]
}
