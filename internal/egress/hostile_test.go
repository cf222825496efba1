package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A listener is a server that only remembers what it received.
type listener struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (l *listener) serve(c net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		l.mu.Lock()
		l.said.Write(b[:n])
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *listener) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}

// tellAll sends pieces on a connection to good.example, closes that side, and waits
// for the end.
func tellAll(t *testing.T, w *world, port string, pieces ...string) {
	t.Helper()
	c, err := w.reach("good.example", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(50 * time.Millisecond) // so that they are read apart
		}
		io.WriteString(c, p)
	}
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(testenv.Patience))
	io.Copy(io.Discard, c)
	w.ended(1)
}

// N3: what some server takes for a request is read as one, however it is
// written. Python's splits lines at odd bytes, Node's takes other protocols for
// HTTP and reads a header behind HTTP/0.9, Go's takes methods of any length.
func TestRequestsOnlySomeServersTake(t *testing.T) {
	const header = "\r\nHost: evil.example\r\nSecret: x\r\n\r\n"
	long := strings.Repeat("A", 5000)
	for name, pieces := range map[string][]string{
		"a space first":           {" GET / HTTP/1.1" + header},
		"a form feed first":       {"\fGET / HTTP/1.1" + header},
		"a separator first":       {"\x1cGET / HTTP/1.1" + header},
		"a wide space first":      {"\xa0GET / HTTP/1.1" + header},
		"a vertical tab between":  {"GET\v/ HTTP/1.1" + header},
		"a wide space between":    {"GET\xa0/ HTTP/1.1" + header},
		"a next line between":     {"GET\x85/ HTTP/1.1" + header},
		"RTSP":                    {"GET / RTSP/1.0" + header},
		"ICE":                     {"SOURCE / ICE/1.0" + header},
		"HTTP/0.9":                {"GET /" + header},
		"HTTP/0.9 with a tab":     {"GET\t/" + header},
		"HTTP/0.9, wide":          {"GET\xa0/" + header},
		"HTTP/0.9 with a URL":     {"GET http://evil.example/" + header},
		"HTTP/0.9 in pieces":      {"GET ", "/" + header},
		"a long method":           {long[:200] + " / HTTP/1.1" + header},
		"a long method in pieces": {long, long, " / HTTP/1.1" + header},
		"spaces in pieces":        {" ", "GET / HTTP/1.1" + header},
	} {
		t.Run(name, func(t *testing.T) {
			w, server := newWorld(t, "good.example"), &listener{}
			w.serve(goodAddr+":80", server.serve)
			tellAll(t, w, "80", pieces...)
			if got := server.heard(); strings.Contains(got, "evil.example") || strings.Contains(got, "Secret") {
				t.Errorf("the server received %q", got)
			}
			if len(w.denied()) != 1 {
				t.Errorf("denied %v", w.denied())
			}
		})
	}
}

// N3: a request without the end of its line is none, and still names a host.
func TestRequestWithoutEnd(t *testing.T) {
	w, server := newWorld(t, "good.example"), &listener{}
	w.serve(goodAddr+":80", server.serve)
	tellAll(t, w, "80", "GET http://evil.example/x")
	if len(w.denied()) != 1 || strings.Contains(server.heard(), "evil") {
		t.Errorf("denied %v, the server received %q", w.denied(), server.heard())
	}
}

// N3: protocols that look a little like the others pass.
func TestOtherProtocolsPass(t *testing.T) {
	for _, text := range []string{
		"AMQP\x00\x00\x09\x01", strings.Repeat("\x00binary", 20_000), "\x00\x00\x00\x10xHTTP/1.1 is no word\n", "220 /\r\n",
		"hello", "HELO good.example\r\n", "get /key\r\n", "SSH-2.0-x\r\n", "*1\r\n$4\r\nPING\r\n", "\x00\x00\x00\x16", " \x00", "NICK a\r\nUSER office/1\r\n",
		"\x16\x00\x00\x00\x02\x02abcdef", "\x16\x00\x00\x01\x09\x05xyz", "\x14abc", "\x15\x00\x10\x01\x02\x03", strings.Repeat("QUJD", 50_000),
	} {
		w, server := newWorld(t, "good.example"), &listener{}
		w.serve(goodAddr+":7", server.serve)
		tellAll(t, w, "7", text)
		if got := server.heard(); got != text || len(w.denied()) != 0 {
			t.Errorf("of %.40q %d bytes arrived; denied %v", text, len(got), w.denied())
		}
	}
}

// N3: a ClientHello is found where only some servers look for one. Go's take any
// version of a record, and skip warnings before the first.
func TestHelloInOddRecords(t *testing.T) {
	plain := string(clientHello(t, "evil.example"))
	for name, first := range map[string]string{
		"a version that never was": plain[:1] + "\x02\x01" + plain[3:],
		"version zero":             plain[:1] + "\x00\x00" + plain[3:],
		"a warning first":          "\x15\x03\x01\x00\x02\x01\x64" + plain,
		"an odd warning first":     "\x15\x00\x01\x00\x02\x01\x64" + plain,
		"a change of ciphers":      "\x14\x03\x01\x00\x01\x01" + plain,
		"data first":               "\x17\x03\x01\x00\x01\x01" + plain,
	} {
		t.Run(name, func(t *testing.T) {
			w, server := newWorld(t, "good.example"), &listener{}
			w.serve(goodAddr+":443", server.serve)
			tellAll(t, w, "443", first[:3], first[3:])
			if got := server.heard(); got != "" || len(w.denied()) != 1 {
				t.Errorf("the server received %q; denied %v", got, w.denied())
			}
		})
	}
}

// N3: what a client says can be long, what is recorded of it is not.
func TestRefusalsAreShort(t *testing.T) {
	w, server := newWorld(t, "good.example"), &listener{}
	w.serve(goodAddr+":80", server.serve)
	tellAll(t, w, "80", strings.Repeat("A", 2000)+" /"+strings.Repeat("b", 20_000)+" HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	for _, d := range w.denied() {
		if len(d.String())+len(runoption.Text(d.Fix...)) > 8<<10 {
			t.Errorf("a refusal of %d bytes", len(d.String()))
		}
	}
}

// N3: names below localhost are nobody else's to answer, whatever the rules.
func TestLocalhostIsNotAskedFor(t *testing.T) {
	for _, rule := range []string{"*", "*.localhost", "good.example"} {
		w := newWorld(t, rule)
		w.name("app.localhost", "93.184.216.66")
		if got := addressesIn(w.ask("app.localhost", dnsmessage.TypeA)); len(got) != 1 || !got[0].IsLoopback() {
			t.Errorf("with %s app.localhost is %v", rule, got)
		}
		if _, r := w.gate.OpenName(context.Background(), netip.AddrPort{}, netip.AddrPort{}, "app.localhost", 80); r == nil || r.Err() != nil {
			t.Errorf("with %s a proxy's client reaches app.localhost", rule)
		}
	}
}

// N3: a QUIC packet without the bit that all have is read anyway: not every
// server looks at it.
func TestQUICWithoutFixedBit(t *testing.T) {
	keys, err := newQUICKeys(quicV1, vectorID())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "good.example")
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w.servers["udp "+goodAddr+":443"] = sink.LocalAddr().String()
	w.lookup("good.example")
	for name, refused := range map[string]bool{"good.example": false, "evil.example": true} {
		flow, r := w.gate.OpenUDP(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort(goodAddr+":443"))
		if r != nil {
			t.Fatal(r)
		}
		message := clientHello(t, name)[5:]
		payload := append([]byte{frameCrypto, 0, 0x40 | byte(len(message)>>8), byte(len(message))}, message...)
		if _, err := flow.Write(sealAs(0x83, keys, vectorID(), 0, payload)); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		flow.Close()
	}
}

// N3: what datagrams make this process keep is bounded over all flows, and given
// back with them.
func TestQUICMemoryIsBounded(t *testing.T) {
	w := newWorld(t, "good.example")
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w.servers["udp "+goodAddr+":443"] = sink.LocalAddr().String()
	w.lookup("good.example")
	// One byte at the far end of a ClientHello.
	frame := []byte{frameCrypto, 0x80, 0, 0x7f, 0xf0, 1, 'x'}
	frame = append(frame, make([]byte, 40)...)
	var flows []net.Conn
	refused := false
	for i := range 12 {
		flow, r := w.gate.OpenUDP(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort(goodAddr+":443"))
		if r != nil {
			t.Fatal(r)
		}
		flows = append(flows, flow)
		for j := range maxQUIC {
			id := binary.BigEndian.AppendUint64(nil, uint64(i*maxQUIC+j))
			keys, err := newQUICKeys(quicV1, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := flow.Write(seal(keys, id, 0, frame)); err != nil {
				refused = true
				break
			}
		}
		if kept := w.gate.quicMemory.Load(); kept > maxQUICMemory {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
	if !refused {
		t.Error("nothing was refused: the test does not reach the bound")
	}
	for _, f := range flows {
		f.Close()
	}
	if kept := w.gate.quicMemory.Load(); kept != 0 {
		t.Errorf("%d bytes are kept after the end", kept)
	}
}
