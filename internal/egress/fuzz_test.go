package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A ClientHello is found in its bytes however it is cut into records, and no prefix
// of it is taken for the whole.
func FuzzReadHello(f *testing.F) {
	plain := clientHello(f, "good.example")
	f.Add(plain, uint8(3))
	f.Add(records(plain, 9), uint8(1))
	f.Add(withExtension(plain, extECH, []byte{1}), uint8(200))
	f.Add(withExtension(plain, extServerName, nameExtension("evil.example")), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		h, err := readHello(b)
		if err != nil {
			if h != (hello{}) {
				t.Errorf("%+v with %v", h, err)
			}
			return
		}
		for i := range b {
			early, err := readHello(b[:i])
			if err == nil && early.serverName != h.serverName || err != nil && !errors.Is(err, errMore) {
				t.Fatalf("the first %d bytes give %+v, %v", i, early, err)
			}
			if err == nil {
				b = b[:i]
				break
			}
		}
		message, _, err := handshakeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		whole := append([]byte{22, 3, 1, 0, 0, 1, byte(len(message) >> 16), byte(len(message) >> 8), byte(len(message))}, message...)
		if again, err := readHello(records(whole, int(cut)+1)); err != nil || again.serverName != h.serverName || again.hidden != h.hidden {
			t.Errorf("cut anew: %+v, %v, want %+v", again, err, h)
		}
	})
}

// What the gate takes for a request, Go's server takes for the same one; and what
// it sends on is read in the same way again.
func FuzzReadRequest(f *testing.F) {
	for _, s := range []string{
		getGood, "POST /a?b HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: 3\r\n\r\nabc",
		"GET http://a.b/c HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n", "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n", "GET /\xff HTTP/1.1\r\nHost: a\r\nX:\t y \r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := readRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		again, err := readRequest(bufio.NewReader(bytes.NewReader(outgoing(q).bytes())))
		if err != nil || again.host != q.host || again.path != q.path || again.method != q.method || again.framing != q.framing {
			t.Fatalf("sent on as %q, read as %+v, %v", outgoing(q).bytes(), again, err)
		}
		compareWithGo(t, b, q)
	})
}

// compareWithGo compares with how Go's server reads the request, if it does.
func compareWithGo(t *testing.T, b []byte, q *request) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return
	}
	if r.Method != q.method || r.Host != q.host && r.URL.Host != q.host {
		t.Errorf("Go reads %s of %q, the gate %s of %q", r.Method, r.Host, q.method, q.host)
	}
	length := r.ContentLength
	if chunked := len(r.TransferEncoding) > 0; chunked != q.framing.chunked || !chunked && length != q.framing.length {
		t.Errorf("Go reads a body of %d, %v, the gate of %+v", length, r.TransferEncoding, q.framing)
	}
}

// A chunked body means the same before and after it went through the gate.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\nrest"))
	f.Add([]byte("5;x=y\r\nhello\r\n00\r\nT: r\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		source, sink := &memory{in: bytes.NewReader(b)}, &memory{}
		s := newStream(source, nil)
		n, err := s.copyChunks(sink, false)
		if n != int64(sink.out.Len()) {
			t.Errorf("%d bytes written, %d counted", sink.out.Len(), n)
		}
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(s.buf)
		original, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+string(b))), nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(original.Body)
		if err != nil {
			return // Go is stricter with trailers and extensions
		}
		sent, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+sink.out.String())), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(sent.Body); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q became %q, %v (left %q)", want, got, err, rest)
		}
	})
}

// memory is a connection to nowhere.
type memory struct {
	in  io.Reader
	out bytes.Buffer
}

func (m *memory) Read(b []byte) (int, error)       { return m.in.Read(b) }
func (m *memory) Write(b []byte) (int, error)      { return m.out.Write(b) }
func (m *memory) Close() error                     { return nil }
func (m *memory) LocalAddr() net.Addr              { return nil }
func (m *memory) RemoteAddr() net.Addr             { return nil }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// Whatever the client's first bytes are, once they are judged to be no HTTP they
// are none to Go's server either.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{getGood, "\r\n" + getGood, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n", "EHLO a\r\n", "\x16\x03\x01", "get k\r\n", "*1\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := classify(b)
		for i := range b {
			if early := classify(b[:i]); early != unsure && early != c {
				t.Fatalf("%d bytes are %d, all are %d", i, early, c)
			}
		}
		if c != opaque {
			return
		}
		if r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b))); err == nil {
			t.Errorf("Go reads a request: %+v", r)
		}
	})
}

// Every answer of the resolver can be read, is an answer to the query, and holds no address
// that a rule does not allow.
func FuzzDNS(f *testing.F) {
	f.Add(makeQuery(f, "good.example", dnsmessage.TypeA), true)
	f.Add(makeQuery(f, "bad.example", dnsmessage.TypeAAAA), false)
	f.Add(makeQuery(f, "_x._tcp.good.example", dnsmessage.TypeSRV), false)
	f.Add(makeQuery(f, "1.0.0.127.in-addr.arpa", dnsmessage.TypePTR), true)
	w := newWorld(f, "good.example", "*.good.example")
	w.name("good.example", goodAddr, "10.0.0.1")
	w.upstream(nil, record("good.example.", dnsmessage.TypeHTTPS, &dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName(".")}}))
	f.Fuzz(func(t *testing.T, b []byte, tcp bool) {
		client := dnsClient{protocol: map[bool]string{true: "tcp", false: "udp"}[tcp]}
		answer := w.gate.answer(client, b)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || !m.Response || m.ID != uint16(b[0])<<8|uint16(b[1]) || !tcp && len(answer) > mostUDP {
			t.Fatalf("%x: %v, %+v", answer, err, m.Header)
		}
		for _, a := range addressesIn(m) {
			if a.String() != goodAddr && !inSinkhole(a) {
				t.Errorf("answers %v", a)
			}
		}
	})
}

// The answer of a name server is not trusted either.
func FuzzReadReply(f *testing.F) {
	query := makeQuery(f, "good.example", dnsmessage.TypeHTTPS)
	q, _ := parseQuery(query)
	f.Add(append([]byte(nil), query...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		code, records, err := readReply(b, query, q)
		if err != nil {
			return
		}
		q.reply(code, records...)
	})
}
