package egress

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
)

// clientHello is a real ClientHello, as Go sends it.
func clientHello(t testing.TB, serverName string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go tls.Client(a, &tls.Config{ServerName: serverName, InsecureSkipVerify: serverName == ""}).Handshake()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// withExtension adds an extension to a ClientHello.
func withExtension(hello []byte, kind uint16, body []byte) []byte {
	h := append([]byte(nil), hello...)
	at := 5 + 4 + 34
	at += 1 + int(h[at])
	at += 2 + int(binary.BigEndian.Uint16(h[at:]))
	at += 1 + int(h[at])
	ext := binary.BigEndian.AppendUint16(nil, kind)
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(body)))
	h = append(h, append(ext, body...)...)
	n := 4 + len(body)
	binary.BigEndian.PutUint16(h[at:], binary.BigEndian.Uint16(h[at:])+uint16(n))
	length := int(h[6])<<16 | int(h[7])<<8 | int(h[8]) + n
	h[6], h[7], h[8] = byte(length>>16), byte(length>>8), byte(length)
	binary.BigEndian.PutUint16(h[3:], binary.BigEndian.Uint16(h[3:])+uint16(n))
	return h
}

// nameExtension is a server_name extension with the names in it.
func nameExtension(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

// records cuts the one record of a ClientHello into records of n bytes.
func records(hello []byte, n int) []byte {
	var out []byte
	for body := hello[5:]; len(body) > 0; {
		part := body[:min(n, len(body))]
		out = append(out, hello[0], hello[1], hello[2])
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
		body = body[len(part):]
	}
	return out
}

func TestReadHello(t *testing.T) {
	plain := clientHello(t, "good.example")
	for _, test := range []struct {
		name  string
		bytes []byte
		want  string
		err   error
		ech   bool
	}{
		{"plain", plain, "good.example", nil, false},
		{"no name", clientHello(t, ""), "", nil, false},
		{"with early data", append(plain[:len(plain):len(plain)], 23, 3, 3, 0, 1, 0), "good.example", nil, false},
		{"records of one byte", records(plain, 1), "good.example", nil, false},
		{"records of seven bytes", records(plain, 7), "good.example", nil, false},
		{"encrypted name", withExtension(plain, extECH, []byte{0, 1, 2}), "good.example", nil, true},
		{"encrypted name of a draft", withExtension(plain, extESNI, []byte{0}), "good.example", nil, true},
		{"cut", plain[:len(plain)-1], "", errMore, false},
		{"cut in the record's head", plain[:4], "", errMore, false},
		{"a second name extension", withExtension(plain, extServerName, nameExtension("evil.example")), "", errHello, false},
		{"two names", withExtension(clientHello(t, ""), extServerName, nameExtension("good.example", "evil.example")), "", errHello, false},
		{"an empty name", withExtension(clientHello(t, ""), extServerName, nameExtension("")), "", errHello, false},
		{"bytes behind the names", withExtension(clientHello(t, ""), extServerName, append(nameExtension("good.example"), 0)), "", errHello, false},
		{"a name with NUL", withExtension(clientHello(t, ""), extServerName, nameExtension("good.example\x00.evil.example")), "good.example\x00.evil.example", nil, false},
		{"an empty record between", append([]byte{22, 3, 1, 0, 0}, plain...), "", errHello, false},
		{"an alert between", append(records(plain, 50)[:55], append([]byte{21, 3, 1, 0, 2, 1, 0}, records(plain, 50)[55:]...)...), "", errHello, false},
		{"another message", append([]byte{22, 3, 1, 0, 4, 2}, 0, 0, 0), "", errHello, false},
		{"a second message in the record", append([]byte{22, 3, 1, 0, 9, 1, 0, 0, 0}, 1, 0, 0, 1, 0), "", errHello, false},
		{"too long", []byte{22, 3, 1, 0, 4, 1, 1, 0, 0}, "", errHello, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readHello(test.bytes)
			if !errors.Is(err, test.err) || got.serverName != test.want || got.hidden != test.ech {
				t.Errorf("got %+v, %v, want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}

// N3: TLS to an allowed name works, with a real client and a real server.
func TestTLSToAllowedName(t *testing.T) {
	w := newWorld(t, "good.example:443")
	pool := w.serveTLS(goodAddr+":443", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "secret") }, "good.example")
	resp, err := w.client(&tls.Config{RootCAs: pool}).Get("https://good.example/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "secret" {
		t.Errorf("got %q", body)
	}
}

// tlsTo makes a handshake with a name over a connection to good.example.
func (w *world) tlsTo(serverName string) error {
	c, err := w.reach("good.example", "443")
	if err != nil {
		return err
	}
	defer c.Close()
	return tls.Client(c, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).Handshake()
}

// N3: an address that names share is not a way from one to another.
func TestServerNameIsCompared(t *testing.T) {
	for _, test := range []struct {
		name, server string
		rules        []string
		allowed      bool
	}{
		{"the same", "good.example", []string{"good.example:443"}, true},
		{"other case", "GOOD.Example", []string{"good.example:443"}, true},
		{"none", "", []string{"good.example:443"}, true},
		{"another", "evil.example", []string{"good.example:443"}, false},
		{"another that is allowed", "other.example", []string{"good.example:443", "other.example:443"}, true},
		{"another, allowed at another port", "other.example", []string{"good.example:443", "other.example:80"}, false},
		{"a suffix", "evilgood.example", []string{"good.example:443"}, false},
		{"any, with any host allowed", "evil.example", []string{"*"}, true},
		{"a denied one, with any host allowed", "evil.example", []string{"*", "!evil.example"}, false},
		{"any, allowed by address", "evil.example", []string{"good.example:443", goodAddr}, true},
		{"a denied one, allowed by address", "evil.example", []string{"good.example", goodAddr, "!evil.example"}, false},
		{"a rule about requests", "good.example", []string{"http://good.example:443/x"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.rules...)
			w.serveTLS(goodAddr+":443", func(http.ResponseWriter, *http.Request) {}, "good.example")
			err := w.tlsTo(test.server)
			if test.allowed {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "access denied") && !strings.Contains(err.Error(), "first record") {
				t.Errorf("got %v, want the alert access_denied", err)
			}
			if r := w.ended(1)[0]; r.Allowed || len(w.denied()) != 1 {
				t.Errorf("record is %+v, denials %v", r, w.denied())
			}
		})
	}
}

// The refusal names what the client asked for, and the option that would allow that.
func TestDenialNamesTheServerThatWasAskedFor(t *testing.T) {
	w := newWorld(t, "good.example:443")
	w.serveTLS(goodAddr+":443", func(http.ResponseWriter, *http.Request) {}, "good.example")
	w.tlsTo("evil.example")
	w.ended(1)
	d := w.denied()[0]
	if d.Host != "evil.example" || runoption.Text(d.Fix...) != "--allow evil.example:443" {
		t.Errorf("denial is %v", &d)
	}
}

// rawTLS sends bytes to good.example:443 and returns what comes back.
func (w *world) rawTLS(pieces ...[]byte) []byte {
	w.t.Helper()
	c, err := w.reach("good.example", "443")
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetNoDelay(true)
	for _, p := range pieces {
		c.Write(p)
		time.Sleep(2 * time.Millisecond) // so that they are read apart
	}
	c.CloseWrite()
	got, _ := io.ReadAll(c)
	return got
}

func TestHiddenServerNames(t *testing.T) {
	plain := clientHello(t, "good.example")
	split := func(b []byte) (pieces [][]byte) {
		for i := range 80 {
			pieces = append(pieces, b[i:i+1])
		}
		return append(pieces, b[80:])
	}
	evil := clientHello(t, "evil.example")
	for _, test := range []struct {
		name    string
		pieces  [][]byte
		rules   []string
		refused bool
	}{
		{"whole", [][]byte{plain}, []string{"good.example"}, false},
		{"byte by byte", split(plain), []string{"good.example"}, false},
		{"another name byte by byte", split(evil), []string{"good.example"}, true},
		{"another name in records of one byte", [][]byte{records(evil, 1)}, []string{"good.example"}, true},
		{"ECH", [][]byte{withExtension(plain, extECH, make([]byte, 200))}, []string{"good.example"}, true},
		{"ECH with any host allowed", [][]byte{withExtension(plain, extECH, make([]byte, 200))}, []string{"*"}, false},
		{"ECH with a name denied", [][]byte{withExtension(plain, extECH, make([]byte, 200))}, []string{"*", "!evil.example"}, true},
		{"a name with NUL", [][]byte{withExtension(clientHello(t, ""), extServerName, nameExtension("good.example\x00"))}, []string{"good.example"}, true},
		{"an endless ClientHello", [][]byte{{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 40000)}, []string{"good.example"}, true},
		{"a cut ClientHello", [][]byte{plain[:50]}, []string{"good.example"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.rules...)
			got := make(chan []byte, 1)
			w.serve(goodAddr+":443", func(c net.Conn) {
				b, _ := io.ReadAll(c)
				got <- b
			})
			answer := w.rawTLS(test.pieces...)
			w.ended(1)
			server := <-got
			if test.refused != (len(server) == 0) || test.refused != (string(answer) == string(deniedAlert())) {
				t.Errorf("the server got %d bytes, the client %x", len(server), answer)
			}
			if test.refused != (len(w.denied()) == 1) {
				t.Errorf("denials are %v", w.denied())
			}
		})
	}
}

// A ClientHello that never ends holds nothing for long.
func TestSlowClientHello(t *testing.T) {
	l := defaultLimits()
	l.first = 50 * time.Millisecond
	w := newLimitedWorld(t, l, "good.example:443")
	w.serve(goodAddr+":443", func(c net.Conn) { io.Copy(io.Discard, c) })
	c, err := w.reach("good.example", "443")
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte{22, 3, 1})
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("not ended")
	}
	if r := w.ended(1)[0]; r.Error == "" {
		t.Errorf("record is %+v", r)
	}
}

// A refused name is refused to TLS clients in their own words.
func TestSinkholeAnswersTLS(t *testing.T) {
	w := newWorld(t, "good.example")
	_, err := w.client(nil).Get("https://bad.example/")
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("got %v", err)
	}
	d := w.denied()
	if len(d) != 2 || d[0].Op != plan.OpResolve || d[1].Op != plan.OpConnect || d[1].Host != "bad.example" || runoption.Text(d[1].Fix...) != "--allow bad.example:443" {
		t.Errorf("denials are %v", d)
	}
}

// A server that cannot use the client's key asks for a second ClientHello.
func TestHelloRetry(t *testing.T) {
	w := newWorld(t, "good.example:443")
	cert, pool := certificate(t, "good.example")
	l := listen(t)
	w.servers["tcp "+goodAddr+":443"] = l.Addr().String()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.CurveP521}})
		io.Copy(s, s)
	}()
	c, err := w.reach("good.example", "443")
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Client(c, &tls.Config{ServerName: "good.example", RootCAs: pool, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP521}})
	io.WriteString(s, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(s, got); err != nil || !s.ConnectionState().HelloRetryRequest {
		t.Errorf("%v, asked for a second: %v", err, s.ConnectionState().HelloRetryRequest)
	}
	s.Close()
	if r := w.ended(1)[0]; !r.Allowed || r.Error != "" {
		t.Errorf("record is %+v", r)
	}
}

// The name in the second ClientHello counts as well.
func TestSecondHelloIsCompared(t *testing.T) {
	retry := append([]byte{22, 3, 3, 0, 40, 2, 0, 0, 36, 3, 3}, retryRandom()...)
	retry = append(retry, 0, 0)
	first, evil := clientHello(t, "good.example"), clientHello(t, "evil.example")
	for _, test := range []struct {
		name   string
		second []byte
		want   string
	}{
		{"another name", evil, string(first)},
		{"in pieces", records(evil, 3), string(first)},
		{"after a change of cipher", append([]byte{20, 3, 3, 0, 1, 1}, evil...), string(first) + "\x14\x03\x03\x00\x01\x01"},
		{"after early data", append([]byte{23, 3, 3, 0, 2, 1, 1}, evil...), string(first) + "\x17\x03\x03\x00\x02\x01\x01"},
		{"no ClientHello", []byte{22, 3, 3, 0, 4, 16, 0, 0, 0}, string(first)},
	} {
		for _, early := range []bool{false, true} {
			w := newWorld(t, "good.example:443")
			seen := make(chan string, 1)
			w.serve(goodAddr+":443", func(c net.Conn) {
				io.ReadFull(c, make([]byte, len(first)))
				c.Write(retry)
				rest, _ := io.ReadAll(c)
				seen <- string(first) + string(rest)
			})
			c, err := w.reach("good.example", "443")
			if err != nil {
				t.Fatal(err)
			}
			if early { // without waiting for the server
				c.Write(append(append([]byte(nil), first...), test.second...))
			} else {
				c.Write(first)
				io.ReadFull(c, make([]byte, len(retry)))
				c.Write(test.second)
			}
			io.ReadAll(c)
			w.ended(1)
			if got := <-seen; got != test.want || len(w.denied()) != 1 {
				t.Errorf("%s, early %v: the server got %d bytes of %d, denials %v", test.name, early, len(got), len(test.want), w.denied())
			}
		}
	}
}
