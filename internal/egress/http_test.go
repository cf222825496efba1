package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
)

func tell(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s %s %q", r.Method, r.Host, r.URL, body)
}

// N3: a refused request gets 403 with a JSON body that names host, rule and flag.
func TestRefusedNameGets403(t *testing.T) {
	w := newWorld(t, "good.example")
	resp, err := w.client(nil).Get("http://bad.example/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := bodyOf(t, resp)
	if got.Host != "bad.example" || got.Port != 80 || got.Method != http.MethodGet || got.Rule != judge.RuleNetworkAllow || got.Grant != "--allow bad.example:80" || got.Reason == "" || got.Origin == "" {
		t.Errorf("got %+v", got)
	}
	if len(w.dials()) != 0 {
		t.Errorf("dialled %v", w.dials())
	}
}

func TestKeepAliveAndBodies(t *testing.T) {
	w := newWorld(t, "good.example:80")
	w.serveHTTP(goodAddr+":80", tell)
	client := w.client(nil)
	long := strings.Repeat("x", 300_000)
	for range 3 {
		resp, err := client.Get("http://good.example/p")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	for i, body := range []io.Reader{nil, strings.NewReader("short"), strings.NewReader(long), struct{ io.Reader }{strings.NewReader(long)}} {
		resp, err := client.Post("http://good.example/p?q=1", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(got), "POST good.example /p?q=1 ") || i > 1 && len(got) < len(long) {
			t.Errorf("%d: got %d bytes, %v", i, len(got), err)
		}
	}
	client.CloseIdleConnections()
	// A request with a body is the last one of its connection: the first goes with
	// those before it, and each of the others by itself.
	r := w.ended(3)
	if len(r) != 3 || r[0].Requests != 5 || r[1].Requests != 1 || r[2].Requests != 1 || r[1].Sent < 300_000 || r[2].Received < 300_000 {
		t.Errorf("records are %+v", r)
	}
	for _, c := range r {
		if c.Error != "" {
			t.Errorf("record is %+v", c)
		}
	}
}

// talk sends bytes on a connection to good.example:80 and reads all that comes
// back. The server sees what it returns as well.
func (w *world) talk(pieces ...string) string {
	w.t.Helper()
	c, err := w.reach("good.example", "80")
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(30 * time.Millisecond) // so that they are read apart
		}
		io.WriteString(c, p)
	}
	c.CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

// recorder is a server that keeps every byte it gets, and answers each head.
type recorder struct{ seen chan string }

func (w *world) record(address string) recorder {
	r := recorder{make(chan string, 16)}
	w.serve(address, func(c net.Conn) {
		var all bytes.Buffer
		in := bufio.NewReader(io.TeeReader(c, &all))
		for {
			h, err := readHead(in)
			if err != nil {
				break
			}
			if f, err := h.bodyFraming(); err == nil && f.length > 0 {
				io.CopyN(io.Discard, in, f.length)
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		io.Copy(&all, in)
		r.seen <- all.String()
	})
	return r
}

const getGood = "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n"

// N3: every request of a connection is compared, and what servers could read in
// two ways is refused before a byte of it is sent.
func TestRequestsThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"another host":                  "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"another host in lower case":    "get / http/1.1\r\nhost: evil.example\r\n\r\n",
		"a method of its own":           "FETCH / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"empty lines first":             "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"two hosts":                     "GET / HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n",
		"no host":                       "GET / HTTP/1.1\r\n\r\n",
		"host in the target":            "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"host in the target alone":      "GET http://evil.example/ HTTP/1.0\r\n\r\n",
		"HTTP/0.9 with a host":          "GET http://evil.example/\r\n",
		"user in the target":            "GET http://good.example@evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"CONNECT":                       "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"folded line":                   "GET / HTTP/1.1\r\nHost: good.example\r\nX: a\r\n b: c\r\n\r\n",
		"folded host":                   "GET / HTTP/1.1\r\nHost:\r\n evil.example\r\n\r\n",
		"space before the colon":        "GET / HTTP/1.1\r\nHost : evil.example\r\n\r\n",
		"bare LF":                       "GET / HTTP/1.1\nHost: evil.example\n\n",
		"bare CR":                       "GET / HTTP/1.1\r\nX: a\rHost: evil.example\r\nHost: good.example\r\n\r\n",
		"NUL":                           "GET / HTTP/1.1\r\nHost: good.example\x00.evil.example\r\n\r\n",
		"NUL in a value":                "GET / HTTP/1.1\r\nHost: good.example\r\nX: \x00\r\n\r\n",
		"tabs in the line":              "GET\t/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"spaces in the line":            "GET  / HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"HTTP/1.2":                      "GET / HTTP/1.2\r\nHost: good.example\r\n\r\n",
		"HTTP/2.0":                      "GET / HTTP/2.0\r\nHost: good.example\r\n\r\n",
		"length twice":                  "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello",
		"length in a list":              "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5, 5\r\n\r\nhello",
		"length with a sign":            "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: +5\r\n\r\nhello",
		"length in hexadecimal":         "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0x5\r\n\r\nhello",
		"length that overflows":         "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
		"length and chunks":             "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked, and something":        "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"chunked, misspelt":             "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
		"chunked twice":                 "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":           "POST / HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a line without a colon":        "GET / HTTP/1.1\r\nHost: good.example\r\nnonsense\r\n\r\n",
		"a header that is too large":    "GET / HTTP/1.1\r\nHost: good.example\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n",
		"a header of too many lines":    "GET / HTTP/1.1\r\nHost: good.example\r\n" + strings.Repeat("a: b\r\n", maxFields) + "\r\n",
		"a target that is too large":    "GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"an address for a host":         "GET / HTTP/1.1\r\nHost: 93.184.216.20\r\n\r\n",
		"an odd spelling of an address": "GET / HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n",
		"a zone":                        "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			server := w.record(goodAddr + ":80")
			got := w.talk(text)
			refusalOf(t, strings.NewReader(got))
			w.ended(1)
			if seen := <-server.seen; seen != "" {
				t.Errorf("the server got %q", seen)
			}
			if len(w.denied()) != 1 {
				t.Errorf("denials are %v", w.denied())
			}
		})
		t.Run(name+", after another", func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			server := w.record(goodAddr + ":80")
			// In one piece: the second is in the buffer when the first is judged.
			got := w.talk(getGood + text)
			_, second, ok := strings.Cut(got, "\r\n\r\nok")
			if !ok {
				t.Fatalf("got %q", got)
			}
			refusalOf(t, strings.NewReader(second))
			if seen := <-server.seen; seen != getGood {
				t.Errorf("the server got %q", seen)
			}
		})
	}
}

func TestRequestsThatAreAllowed(t *testing.T) {
	for name, text := range map[string]string{
		"plain":               getGood,
		"port in the host":    "GET / HTTP/1.1\r\nHost: good.example:80\r\n\r\n",
		"case and dot":        "GET / HTTP/1.1\r\nhost: GOOD.example.\r\n\r\n",
		"absolute":            "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"HTTP/1.0":            "GET / HTTP/1.0\r\n\r\n",
		"own address":         "GET / HTTP/1.0\r\nHost: good.example\r\n\r\n",
		"OPTIONS *":           "OPTIONS * HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"a method of its own": "FETCH / HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"bytes above ASCII":   "GET /\xc3\xbc HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"long":                "GET /" + strings.Repeat("x", 40000) + " HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"body":                "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			w.record(goodAddr + ":80")
			if got := w.talk(text); !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
				t.Errorf("got %q", got)
			}
			if d := w.denied(); d != nil {
				t.Errorf("denials are %v", d)
			}
		})
	}
}

// Where any host is allowed there is nothing to compare, and nothing is refused for
// its form.
func TestNothingToCompare(t *testing.T) {
	for _, rules := range [][]string{{"*"}, {"good.example", goodAddr}} {
		w := newWorld(t, rules...)
		w.serve(goodAddr+":80", echo)
		for _, text := range []string{"GET / HTTP/1.1\nHost: evil.example\n\n", "PRI * HTTP/2.0\r\n\r\n??", "\x16\x03\x01\x00\x00"} {
			if got := w.talk(text); got != text {
				t.Errorf("%v: %q became %q", rules, text, got)
			}
		}
		if d := w.denied(); d != nil {
			t.Errorf("denials are %v", d)
		}
	}
}

// A body that looks like a request is a body, and for a server that does not read
// bodies nothing at all: it learns that no other request comes.
func TestBodyIsNoRequest(t *testing.T) {
	w := newWorld(t, "good.example:80")
	server := w.record(goodAddr + ":80")
	inner := "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner)
	if got := w.talk(text + getGood); strings.Count(got, "200 OK") != 1 || !strings.Contains(got, "Connection: close\r\n") {
		t.Errorf("got %q", got)
	}
	if seen := <-server.seen; seen != strings.Replace(text, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1) {
		t.Errorf("the server got %q", seen)
	}
}

// Pipelined requests are answered in order, one by one.
func TestPipelining(t *testing.T) {
	w := newWorld(t, "good.example:80")
	server := w.record(goodAddr + ":80")
	if got := w.talk(strings.Repeat(getGood, 50)); strings.Count(got, "200 OK") != 50 {
		t.Errorf("got %d answers", strings.Count(got, "200 OK"))
	}
	<-server.seen
	if r := w.ended(1)[0]; r.Requests != 50 {
		t.Errorf("record is %+v", r)
	}
}

// Chunks are sent on in their plain form; a size that lies ends the connection.
func TestChunks(t *testing.T) {
	const start = "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct{ name, body, want string }{
		{"plain", "5\r\nhello\r\n0\r\n\r\n", `"hello"`},
		{"extension", "5;a=\"b\"\r\nhello\r\n0\r\n\r\n", `"hello"`},
		{"trailer", "5\r\nhello\r\n0\r\nHost: evil.example\r\n\r\n", `"hello"`},
		{"capital", "00A\r\nhellohello\r\n0\r\n\r\n", `"hellohello"`},
		{"too short", "4\r\nhello\r\n0\r\n\r\n", ""},
		{"negative", "-5\r\nhello\r\n0\r\n\r\n", ""},
		{"prefix", "0x5\r\nhello\r\n0\r\n\r\n", ""},
		{"too large", "8000000000000000\r\nhello\r\n0\r\n\r\n", ""},
		{"bare LF", "5\nhello\n0\n\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			w.serveHTTP(goodAddr+":80", tell)
			got := w.talk(start + test.body)
			if test.want != "" && !strings.Contains(got, test.want) || test.want == "" && strings.Contains(got, "hello") {
				t.Errorf("got %q", got)
			}
			if test.want == "" {
				refusalOf(t, strings.NewReader(got))
			}
		})
	}
}

func TestResponsesOfAllKinds(t *testing.T) {
	for _, test := range []struct{ name, request, response, want string }{
		{"until the end", getGood, "HTTP/1.1 200 OK\r\n\r\nall of it", "all of it"},
		{"HTTP/1.0", getGood, "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\none", "one"},
		{"chunks", getGood, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\nT: x\r\n\r\n", "3\r\none\r\n0\r\nT: x\r\n\r\n"},
		{"nothing", getGood, "HTTP/1.1 204 No Content\r\n\r\n", "204 No Content"},
		{"bare LF", getGood, "HTTP/1.1 200 OK\nContent-Length: 3\n\none", "one"},
		{"odd lines", getGood, "HTTP/1.1 200 OK\r\nsome thing\r\n: x\r\nContent-Length: 3\r\n\r\none", "one"},
		{"both lengths", getGood, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", "3\r\none\r\n0\r\n\r\n"},
		{"no HTTP", getGood, "what?", "what?"},
		{"continue", getGood, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none", "one"},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "Content-Length: 1000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			w.serve(goodAddr+":80", func(c net.Conn) {
				readHead(bufio.NewReader(c))
				io.WriteString(c, test.response)
			})
			if got := w.talk(test.request); !strings.Contains(got, test.want) || !strings.HasPrefix(got, test.response[:4]) {
				t.Errorf("got %q", got)
			}
			if d := w.denied(); d != nil {
				t.Errorf("denials are %v", d)
			}
		})
	}
}

// A WebSocket is carried once the server has agreed, and only then.
func TestUpgrade(t *testing.T) {
	const upgrade = "GET /ws HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	t.Run("agreed", func(t *testing.T) {
		w := newWorld(t, "http://good.example/ws")
		w.serve(goodAddr+":80", func(c net.Conn) {
			in := bufio.NewReader(c)
			readHead(in)
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			io.Copy(c, in)
		})
		if got := w.talk(upgrade, "\x81\x05hello"); !strings.HasSuffix(got, "\x81\x05hello") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("not agreed", func(t *testing.T) {
		w := newWorld(t, "good.example:80")
		server := w.record(goodAddr + ":80")
		got := w.talk(upgrade + "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		if !strings.Contains(got, "denied by cloche") {
			t.Errorf("got %q", got)
		}
		if seen := <-server.seen; strings.Contains(seen, "evil") {
			t.Errorf("the server got %q", seen)
		}
	})
	for _, to := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.0, HTTP/1.1", "tls/1.2", "HTTP/2.0"} {
		t.Run("to "+to, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			server := w.record(goodAddr + ":80")
			w.talk("GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + to + "\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
			if seen := <-server.seen; strings.Contains(strings.ToLower(seen), "upgrade") || strings.Contains(seen, "HTTP2") {
				t.Errorf("the server got %q", seen)
			}
		})
	}
	t.Run("not asked for", func(t *testing.T) {
		w := newWorld(t, "good.example:80")
		seen := make(chan string, 1)
		w.serve(goodAddr+":80", func(c net.Conn) {
			in := bufio.NewReader(c)
			readHead(in)
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			rest, _ := io.ReadAll(in)
			seen <- string(rest)
		})
		w.talk(getGood, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		if got := <-seen; got != "" {
			t.Errorf("the server got %q", got)
		}
	})
}
