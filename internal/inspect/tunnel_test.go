package inspect

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// frame makes a frame of a WebSocket's client.
func frame(op byte, payload string) []byte {
	b := []byte{op, 0x80}
	switch n := len(payload); {
	case n < 126:
		b[1] |= byte(n)
	case n < 1<<16:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	key := [4]byte{1, 2, 0xfe, 0x80}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// webSocket is a server that sends back what it gets, without frames: the inspector does
// not look at the server's.
func webSocket(w **world) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		(*w).say(fmt.Sprintf("%s %s %s", r.Header.Get("Authorization"), r.Header.Get("Upgrade"), r.Header.Get("Sec-Websocket-Extensions")))
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n%s|", r.Header.Get("Upgrade"), r.Header.Get("Authorization"))
		buf.Flush()
		b := make([]byte, 4096)
		for {
			n, err := buf.Read(b)
			if err != nil {
				return
			}
			(*w).say(string(b[:n]))
			conn.Write(b[:n])
		}
	}
}

// upgraded returns a client's connection after the switch.
func (w *world) upgraded(protocol string) (io.ReadWriteCloser, *bufio.Reader) {
	w.t.Helper()
	c := w.raw()
	fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n"+
		"Sec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer %s\r\n\r\n", apiHost, protocol, placeholder)
	r := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("no switch of protocols: %v, %v", res, err)
	}
	return c, r
}

func TestWebSocket(t *testing.T) {
	var w *world
	w = newWorld(t, webSocket(&w), withSecret())
	c, r := w.upgraded("websocket")
	hello := "Bearer " + placeholder + "|" // with the placeholder in the place of the value
	if got := make([]byte, len(hello)); true {
		if _, err := io.ReadFull(r, got); err != nil || string(got) != hello {
			t.Fatalf("the server's first words: %q, %v", got, err)
		}
	}
	if got := w.got()[0]; got != "Bearer "+secretValue+" websocket " {
		t.Errorf("the server got %q", got)
	}
	for _, n := range []int{0, 5, 125, 126, 70000} {
		f := frame(0x81, strings.Repeat("x", n))
		c.Write(f)
		got := make([]byte, len(f))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, f) {
			t.Fatalf("a message of %d bytes did not come back: %v", n, err)
		}
	}
	// What the server says is searched, too.
	c.Write([]byte(secretValue)) // as a frame, this is nonsense
	got := make([]byte, len(secretValue))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != placeholder {
		t.Errorf("the server's words: %q, %v", got, err)
	}
	c.Close()
	if e := w.recorded(1)[0]; e.Status != 101 || e.Sent < 70000 || e.Received < 70000 {
		t.Errorf("recorded %+v", e)
	}
}

func TestPlaceholderInWebSocket(t *testing.T) {
	cut := len(placeholder) / 2
	for name, frames := range map[string][]byte{
		"one message":   frame(0x81, "before "+placeholder),
		"two parts":     append(frame(0x01, placeholder[:cut]), frame(0x80, placeholder[cut:])...),
		"around a ping": append(append(frame(0x01, placeholder[:cut]), frame(0x89, "ping")...), frame(0x80, placeholder[cut:])...),
		"in a ping":     frame(0x89, placeholder),
	} {
		for _, step := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("%s by %d", name, step), func(t *testing.T) {
				var w *world
				w = newWorld(t, webSocket(&w), withSecret())
				c, r := w.upgraded("websocket")
				for b := frames; len(b) > 0; b = b[min(step, len(b)):] {
					if _, err := c.Write(b[:min(step, len(b))]); err != nil {
						break
					}
				}
				testenv.Eventually(t, "a misuse", func() bool { return len(w.misused()) == 1 })
				if m := w.misused()[0]; m.Where != "a WebSocket message" || m.Path != "/socket" {
					t.Errorf("misuse %+v", m)
				}
				io.Copy(io.Discard, r) // the connection ends
				sent := new(frameReader)
				for _, s := range w.got()[1:] {
					p := sent.payload([]byte(s))
					if strings.Contains(string(p[0])+string(p[1]), placeholder) {
						t.Error("the server got the placeholder")
					}
				}
				if e := w.recorded(1)[0]; !e.Refused {
					t.Errorf("recorded %+v", e)
				}
			})
		}
	}
}

func TestPlaceholderInOtherUpgrade(t *testing.T) {
	var w *world
	w = newWorld(t, webSocket(&w), withSecret())
	c, r := w.upgraded("tcp")
	io.WriteString(c, "x"+placeholder)
	io.Copy(io.Discard, r)
	testenv.Eventually(t, "a misuse", func() bool { return len(w.misused()) == 1 })
}

// Frames are read in the same way however they are split.
func FuzzFrames(f *testing.F) {
	f.Add(append(frame(0x01, "hello"), frame(0x89, "ping")...), uint64(1))
	f.Add(frame(0x82, strings.Repeat("y", 300)), uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		whole := new(frameReader).payload(b)
		var split [2][]byte
		random := rand.New(rand.NewPCG(seed, 0))
		reader := new(frameReader)
		for rest := b; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 20))
			p := reader.payload(rest[:n])
			split[0], split[1] = append(split[0], p[0]...), append(split[1], p[1]...)
			rest = rest[n:]
		}
		if !bytes.Equal(whole[0], split[0]) || !bytes.Equal(whole[1], split[1]) {
			t.Errorf("in one piece %q, split %q", whole, split)
		}
	})
}
