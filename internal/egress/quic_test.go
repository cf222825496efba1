package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/quic"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// serveQUIC runs a server that sends back what comes.
func (w *world) serveQUIC(address string, names ...string) *x509.CertPool {
	w.t.Helper()
	cert, pool := certificate(w.t, names...)
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"echo"}}
	e, err := quic.Listen("udp", "127.0.0.1:0", &quic.Config{TLSConfig: config})
	if err != nil {
		w.t.Fatal(err)
	}
	w.servers["udp "+address] = e.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := e.Accept(ctx)
			if err != nil {
				return
			}
			work.Go(func() {
				for {
					stream, err := conn.AcceptStream(ctx)
					if err != nil {
						return
					}
					io.Copy(stream, stream)
					stream.Close()
				}
			})
		}
	})
	w.t.Cleanup(func() {
		cancel()
		e.Close(canceled())
		work.Wait()
	})
	return pool
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// udpThrough gives a client a socket of its own that leads to an address of the
// world, as a user-mode network does.
func (w *world) udpThrough(address string) string {
	w.t.Helper()
	inside, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	flow, r := w.gate.OpenUDP(context.Background(), netip.MustParseAddrPort("198.18.0.2:5000"), netip.MustParseAddrPort(address))
	if r != nil {
		w.t.Fatal(r)
	}
	var work sync.WaitGroup
	var client net.Addr
	known := make(chan struct{})
	work.Go(func() {
		b := make([]byte, 65536)
		for once := sync.OnceFunc(func() { close(known) }); ; {
			n, from, err := inside.ReadFrom(b)
			if err != nil {
				once()
				return
			}
			if client == nil {
				client = from
			}
			once()
			flow.Write(b[:n])
		}
	})
	work.Go(func() {
		b := make([]byte, 65536)
		for <-known; ; {
			n, err := flow.Read(b)
			if err != nil {
				flow.Close()
				return
			}
			inside.WriteTo(b[:n], client)
		}
	})
	w.t.Cleanup(func() {
		inside.Close()
		flow.Close()
		work.Wait()
	})
	return inside.LocalAddr().String()
}

// sayQUIC sends a text and returns what comes back.
func sayQUIC(ctx context.Context, address, name, text string, pool *x509.CertPool) (string, error) {
	e, err := quic.Listen("udp", "127.0.0.1:0", nil)
	if err != nil {
		return "", err
	}
	defer e.Close(canceled())
	config := &tls.Config{ServerName: name, RootCAs: pool, MinVersion: tls.VersionTLS13, NextProtos: []string{"echo"}}
	conn, err := e.Dial(ctx, "udp", address, &quic.Config{TLSConfig: config})
	if err != nil {
		return "", err
	}
	defer conn.Abort(nil)
	stream, err := conn.NewStream(ctx)
	if err != nil {
		return "", err
	}
	stream.SetReadContext(ctx)
	io.WriteString(stream, text)
	stream.CloseWrite()
	got, err := io.ReadAll(stream)
	return string(got), err
}

// N3: QUIC works per host and port, and the name in it is compared.
func TestQUIC(t *testing.T) {
	w := newWorld(t, "good.example:443")
	pool := w.serveQUIC(goodAddr+":443", "good.example", "evil.example")
	w.lookup("good.example")
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	long := string(bytes.Repeat([]byte("quic "), 20000))
	if got, err := sayQUIC(ctx, w.udpThrough(goodAddr+":443"), "good.example", long, pool); err != nil || got != long {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if d := w.denied(); d != nil {
		t.Fatalf("denials are %v", d)
	}
	short, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer stop()
	if got, err := sayQUIC(short, w.udpThrough(goodAddr+":443"), "evil.example", "hello", pool); err == nil {
		t.Errorf("got %q", got)
	}
	if d := w.denied(); len(d) != 1 || d[0].Host != "evil.example" || d[0].Protocol != "udp" || d[0].Rule != judge.RuleNetworkAllow {
		t.Errorf("denials are %v", d)
	}
	for _, r := range w.ended(1) {
		if !r.Allowed && r.Sent != 0 {
			t.Errorf("record is %+v: nothing may be sent", r)
		}
	}
}

// clientInitial is the packet of RFC 9001, appendix A.2, whose ClientHello asks
// for example.com.
func clientInitial(t testing.TB) []byte {
	t.Helper()
	keys, err := newQUICKeys(quicV1, vectorID())
	if err != nil {
		t.Fatal(err)
	}
	hello, err := hex.DecodeString("010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e000500050100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff")
	if err != nil {
		t.Fatal(err)
	}
	payload := append([]byte{frameCrypto, 0, 0x40, byte(len(hello))}, hello...)
	return seal(keys, vectorID(), 2, append(payload, make([]byte, 1162-len(payload))...))
}

func vectorID() []byte { return []byte{0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08} }

// seal makes an Initial packet with a packet number of four bytes.
func seal(k *quicKeys, dcid []byte, number byte, payload []byte) []byte {
	return sealAs(0xc3, k, dcid, number, payload)
}

// sealAs is seal with another first byte.
func sealAs(first byte, k *quicKeys, dcid []byte, number byte, payload []byte) []byte {
	p := append([]byte{first, 0, 0, 0, 1, byte(len(dcid))}, dcid...)
	p = append(p, 0, 0)
	size := 4 + len(payload) + k.aead.Overhead()
	p = append(p, 0x40|byte(size>>8), byte(size))
	at := len(p)
	p = append(p, 0, 0, 0, number)
	nonce := append([]byte(nil), k.iv...)
	nonce[len(nonce)-1] ^= number
	p = k.aead.Seal(p, nonce, payload, p)
	var mask [16]byte
	k.hp.Encrypt(mask[:], p[at+4:at+20])
	p[0] ^= mask[0] & 0x0f
	for i := range 4 {
		p[at+i] ^= mask[1+i]
	}
	return p
}

// The keys and the packet are those of the standard's example.
func TestQUICVectors(t *testing.T) {
	keys, err := newQUICKeys(quicV1, vectorID())
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(keys.iv); got != "fa044b2f42a3fd3b46fb255c" {
		t.Errorf("iv is %s", got)
	}
	packet := clientInitial(t)
	if got := hex.EncodeToString(packet[:48]); got != "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9bd8bab936b47d92ec356c" {
		t.Errorf("packet is %s", got)
	}
	var asked []string
	g := &quicGuard{total: new(atomic.Int64), judge: func(h hello) error { asked = append(asked, h.serverName); return nil }}
	out, err := g.pass(packet)
	if err != nil || len(out) != 1 || len(asked) != 1 || asked[0] != "example.com" {
		t.Errorf("asked for %q, %d sent, %v", asked, len(out), err)
	}
	// Version 2, RFC 9369, appendix A.1.
	if keys, err = newQUICKeys(quicV2, vectorID()); err != nil || hex.EncodeToString(keys.iv) != "91f73e2351d8fa91660e909f" {
		t.Errorf("iv of version 2 is %x, %v", keys.iv, err)
	}
}

// A ClientHello in pieces is held until it is whole; one that says two things, or is
// hidden in a second packet, is refused.
func TestQUICPieces(t *testing.T) {
	keys, err := newQUICKeys(quicV1, vectorID())
	if err != nil {
		t.Fatal(err)
	}
	good, evil := clientHello(t, "good.example")[5:], clientHello(t, "evil.example")[5:]
	crypto := func(offset int, data []byte) []byte {
		b := []byte{frameCrypto, 0x80, 0, byte(offset >> 8), byte(offset), 0x80, 0, byte(len(data) >> 8), byte(len(data))}
		return append(b, data...)
	}
	packet := func(number byte, payload ...[]byte) []byte {
		return seal(keys, vectorID(), number, append(bytes.Join(payload, nil), make([]byte, 40)...))
	}
	broken := bytes.Clone(packet(0, crypto(0, good)))
	broken[len(broken)-1] ^= 1
	for _, test := range []struct {
		name      string
		datagrams [][]byte
		sent      int
		refused   bool
	}{
		{"whole", [][]byte{packet(0, crypto(0, good))}, 1, false},
		{"halves", [][]byte{packet(0, crypto(0, good[:99])), packet(1, crypto(99, good[99:]))}, 2, false},
		{"the second half first", [][]byte{packet(0, crypto(99, good[99:])), packet(1, crypto(0, good[:99]))}, 2, false},
		{"in disorder in one packet", [][]byte{packet(0, crypto(50, good[50:]), []byte{0, 1}, crypto(0, good[:50]))}, 1, false},
		{"sent again", [][]byte{packet(0, crypto(0, good)), packet(1, crypto(0, good))}, 2, false},
		{"acknowledged", [][]byte{packet(0, crypto(0, good)), packet(1, []byte{2, 0, 0, 0, 0})}, 2, false},
		{"half", [][]byte{packet(0, crypto(0, good[:99]))}, 0, false},
		{"something else first", [][]byte{{1, 2, 3}, {0xc0}, {0xff, 1, 2, 3, 4, 5, 6}, packet(0, crypto(0, good))}, 4, false},
		{"that nobody can read", [][]byte{broken}, 0, false},
		{"another name", [][]byte{packet(0, crypto(0, evil))}, 0, true},
		{"another name in halves", [][]byte{packet(0, crypto(0, evil[:99])), packet(1, crypto(99, evil[99:]))}, 0, true},
		{"another name in the second packet of a datagram", [][]byte{append(packet(0, []byte{1}), packet(1, crypto(0, evil))...)}, 0, true},
		{"another name in a second ClientHello", [][]byte{packet(0, crypto(0, good)), packet(1, crypto(len(good), evil))}, 1, true},
		{"two contents", [][]byte{packet(0, crypto(0, good[:99])), packet(1, crypto(0, evil))}, 0, true},
		{"another message", [][]byte{packet(0, crypto(0, []byte{2, 0, 0, 0}))}, 0, true},
		{"too long", [][]byte{packet(0, crypto(40000, good))}, 0, true},
		{"another frame", [][]byte{packet(0, []byte{8, 0})}, 0, true},
		{"an old version", [][]byte{append([]byte{0xc0, 0xff, 0, 0, 29, 8}, make([]byte, 1300)...)}, 0, true},
		{"ECH", [][]byte{packet(0, crypto(0, withExtension(clientHello(t, "good.example"), extECH, []byte{1})[5:]))}, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "good.example")
			server, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			w.servers["udp "+goodAddr+":443"] = server.LocalAddr().String()
			w.lookup("good.example")
			flow, r := w.gate.OpenUDP(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort(goodAddr+":443"))
			if r != nil {
				t.Fatal(r)
			}
			var want int64
			var last error
			for _, d := range test.datagrams {
				_, last = flow.Write(d)
				want += int64(len(d))
			}
			flow.Close()
			record := w.ended(1)[0]
			if test.refused != (last != nil) || test.refused == record.Allowed || test.refused != (len(w.denied()) == 1) {
				t.Errorf("%v, record %+v, denials %v", last, record, w.denied())
			}
			if test.sent == len(test.datagrams) && record.Sent != want || test.sent == 0 && record.Sent != 0 {
				t.Errorf("%d bytes sent of %d", record.Sent, want)
			}
		})
	}
}

func FuzzQUIC(f *testing.F) {
	f.Add(clientInitial(f), true)
	keys, _ := newQUICKeys(quicV1, vectorID())
	message := clientHello(f, "good.example")[5:]
	payload := append([]byte{frameCrypto, 0, 0x40 | byte(len(message)>>8), byte(len(message))}, message...)
	f.Add(payload, false)
	f.Fuzz(func(t *testing.T, b []byte, whole bool) {
		if !whole { // what the fuzzer could not encrypt
			b = seal(keys, vectorID(), 0, append(b[:min(len(b), 8000):min(len(b), 8000)], make([]byte, 20)...))
		}
		g := &quicGuard{total: new(atomic.Int64), judge: func(hello) error { return nil }}
		out, err := g.pass(b)
		if err == nil && len(out) > 1 || err != nil && out != nil {
			t.Errorf("%d datagrams, %v", len(out), err)
		}
	})
}
