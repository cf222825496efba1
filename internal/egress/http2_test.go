package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// serveHTTP2 runs a server of plain HTTP/2, as gRPC without TLS is.
func (w *world) serveHTTP2(address string) {
	l := listen(w.t)
	w.servers["tcp "+address] = l.Addr().String()
	s := &http.Server{Handler: http.HandlerFunc(tell), Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l)
	w.t.Cleanup(func() { s.Close() })
}

func (w *world) http2Client() *http.Client {
	t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(address)
		return w.reach("good.example", port)
	}}
	t.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: testenv.Patience}
}

// N3: gRPC without TLS works per host and port; each request is compared.
func TestPlainHTTP2(t *testing.T) {
	w := newWorld(t, "good.example:50051")
	w.serveHTTP2(goodAddr + ":50051")
	client := w.http2Client()
	long := strings.Repeat("x", 200_000)
	for i := range 5 {
		req, _ := http.NewRequest(http.MethodPost, "http://good.example:50051/p", strings.NewReader(long))
		req.Header.Set("X-Large", strings.Repeat("y", 15000*i))
		req.Header.Set("X-Same", "remembered")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.ProtoMajor != 2 || len(body) < len(long) {
			t.Errorf("%s, %d bytes", resp.Proto, len(body))
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://good.example:50051/p", nil)
	req.Host = "evil.example"
	if resp, err := client.Do(req); err == nil {
		t.Errorf("got %s", resp.Status)
	}
	if r := w.ended(1)[0]; r.Requests != 6 || r.Allowed {
		t.Errorf("record is %+v", r)
	}
	if d := w.denied(); len(d) != 1 || d[0].Op != plan.OpRequest || d[0].Host != "evil.example" {
		t.Errorf("denials are %v", d)
	}
}

func frame(kind, flags byte, stream uint32, body []byte) []byte {
	b := []byte{byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), body...)
}

func headerBlock(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func TestHTTP2ThatIsRefused(t *testing.T) {
	good := headerBlock(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "good.example")
	evil := headerBlock(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "evil.example")
	const end = flagEndHeaders | 1
	padded := append(append([]byte{3, 0, 0, 0, 0, 9}, evil...), 0, 0, 0)
	for name, frames := range map[string][]byte{
		"another host":          frame(frameHeaders, end, 1, evil),
		"on another stream":     slices.Concat(frame(frameHeaders, end, 1, good), frame(0, 1, 1, []byte("data")), frame(frameHeaders, end, 3, evil)),
		"padded":                frame(frameHeaders, end|flagPadded|flagPriority, 1, padded),
		"continued":             slices.Concat(frame(frameHeaders, 1, 1, evil[:3]), frame(frameContinuation, flagEndHeaders, 1, evil[3:])),
		"two hosts":             frame(frameHeaders, end, 1, headerBlock(":method", "GET", ":path", "/", ":authority", "good.example", "host", "evil.example")),
		"only a Host field":     frame(frameHeaders, end, 1, headerBlock(":method", "GET", ":path", "/", "host", "evil.example")),
		"no host":               frame(frameHeaders, end, 1, headerBlock(":method", "GET", ":path", "/")),
		"a host in a trailer":   frame(frameHeaders, end, 1, headerBlock(":authority", "evil.example")),
		"capital letters":       frame(frameHeaders, end, 1, headerBlock(":method", "GET", ":path", "/", ":authority", "good.example", "Host", "evil.example")),
		"continued elsewhere":   slices.Concat(frame(frameHeaders, 1, 1, good[:3]), frame(frameContinuation, flagEndHeaders, 3, good[3:])),
		"interrupted":           slices.Concat(frame(frameHeaders, 1, 1, good[:3]), frame(0, 0, 1, nil)),
		"continued for ever":    slices.Concat(frame(frameHeaders, 1, 1, nil), bytes.Repeat(frame(frameContinuation, 0, 1, nil), 100)),
		"continuation alone":    frame(frameContinuation, flagEndHeaders, 1, evil),
		"a push":                frame(framePush, flagEndHeaders, 1, append([]byte{0, 0, 0, 2}, evil...)),
		"a header too large":    frame(frameHeaders, end, 1, make([]byte, maxBlock+1)),
		"more padding than all": frame(frameHeaders, end|flagPadded, 1, []byte{200, 0x82}),
		"an unknown index":      frame(frameHeaders, end, 1, []byte{0xff, 0x7f}),
		"a broken preface":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			seen := make(chan string, 1)
			w.serve(goodAddr+":80", func(c net.Conn) {
				b, _ := io.ReadAll(c)
				seen <- string(b)
			})
			start := preface2 + string(frame(4, 0, 0, nil))
			if frames == nil {
				start = "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"
			}
			w.talk(start + string(frames))
			w.ended(1)
			got := <-seen
			if strings.Contains(got, string(evil)) || strings.Contains(got, string(evil[4:])) || len(w.denied()) != 1 {
				t.Errorf("the server got %q, denials %v", got, w.denied())
			}
		})
	}
}

// Where rules are about requests, HTTP/2 is refused.
func TestHTTP2AndRulesAboutRequests(t *testing.T) {
	w := newWorld(t, "good.example:80", "!http://good.example/secret")
	w.serveHTTP2(goodAddr + ":80")
	if resp, err := w.http2Client().Get("http://good.example/"); err == nil {
		t.Errorf("got %s", resp.Status)
	}
	w.ended(1)
}

// Any blocks are decoded or refused. Text survives, and bad codes are refused.
func FuzzHPACK(f *testing.F) {
	f.Add(headerBlock(":method", "GET", "x", "y"), headerBlock("x", "y"))
	f.Add([]byte{0x82, 0x3f, 0xe1, 0x1f, 0x40, 1, 'a', 1, 'b', 0xbe}, []byte{0xbe})
	f.Add([]byte{0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff}, []byte{0x20, 0xbe})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		decoder := newHeaderDecoder()
		for _, block := range [][]byte{one, two} {
			fields, err := decoder.decode(block)
			if err != nil {
				return
			}
			for _, h := range fields {
				if len(h.name) > maxBlock || len(h.value) > maxBlock {
					t.Fatalf("%x: a field of %d and %d bytes", block, len(h.name), len(h.value))
				}
			}
		}
	})
}

// Every text can be coded and decoded.
func TestHuffman(t *testing.T) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	for _, text := range []string{"", "a", "www.example.com", string(all), strings.Repeat("\xff\x00", 100)} {
		fields, err := newHeaderDecoder().decode(headerBlock("x", text))
		if err != nil || len(fields) != 1 || fields[0] != (field{"x", text}) {
			t.Errorf("%q became %q, %v", text, fields, err)
		}
	}
	for _, bad := range []string{"\xff\xff\xff\xff", "\x00", "\xff"} {
		block := append([]byte{0, 1, 'x', 0x80 | byte(len(bad))}, bad...)
		if got, err := newHeaderDecoder().decode(block); err == nil {
			t.Errorf("%x is %q", bad, got)
		}
	}
	// A block that ends in the middle of a field, and a table that is too large.
	for _, bad := range []string{"\x00\x01x", "\x40\x05ab", "\x3f\xe2\xff\x03", "\xbe", "\x80"} {
		if got, err := newHeaderDecoder().decode([]byte(bad)); err == nil {
			t.Errorf("%x is %q", bad, got)
		}
	}
}
