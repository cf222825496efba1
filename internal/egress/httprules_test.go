package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// N3: rules about methods and paths, for each request of a connection.
func TestMethodsAndPaths(t *testing.T) {
	w := newWorld(t, "GET http://good.example/v1/**", "POST http://good.example/upload")
	w.serveHTTP(goodAddr+":80", tell)
	client := w.client(nil)
	for _, test := range []struct {
		method, path string
		allowed      bool
	}{
		{"GET", "/v1/a", true}, {"GET", "/v1/a?b=c", true}, {"POST", "/upload", true},
		{"POST", "/v1/a", false}, {"GET", "/v2", false}, {"GET", "/v1/../v2", false}, {"GET", "/upload", false},
	} {
		req, _ := http.NewRequest(test.method, "http://good.example"+test.path, nil)
		req.URL.Opaque = test.path // as it is
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if test.allowed != (resp.StatusCode == http.StatusOK) {
			t.Errorf("%s %s: %s", test.method, test.path, resp.Status)
		}
		if !test.allowed {
			if got := bodyOf(t, resp); got.Method != test.method || got.Path != test.path {
				t.Errorf("%+v", got)
			}
		}
		resp.Body.Close()
	}
	d := w.denied()
	if len(d) != 4 || d[0].Op != plan.OpRequest || d[0].Method != http.MethodPost || d[0].Path != "/v1/a" {
		t.Errorf("denials are %v", d)
	}
}

// Where requests are judged, nothing but HTTP passes.
func TestRulesAboutRequestsRefuseOtherProtocols(t *testing.T) {
	for name, text := range map[string]string{
		"binary": "\x00\x01\x02", "text": "hello\r\n", "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "TLS": string(clientHello(t, "good.example")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "http://good.example/x")
			server := w.record(goodAddr + ":80")
			w.talk(text)
			w.ended(1)
			if seen := <-server.seen; seen != "" || len(w.denied()) != 1 {
				t.Errorf("the server got %q, denials %v", seen, w.denied())
			}
		})
	}
}

// A first line that comes in pieces is waited for; sent on as a text of some
// other protocol, it may not become a request.
func TestRequestInPieces(t *testing.T) {
	t.Run("soon", func(t *testing.T) {
		w := newWorld(t, "good.example:80")
		w.record(goodAddr + ":80")
		if got := w.talk("GE", "T / HT", "TP/1.1\r\nHo", "st: good.example\r\n\r\n"); !strings.Contains(got, "200 OK") {
			t.Errorf("got %q", got)
		}
	})
	for name, pieces := range map[string][]string{
		"late":                {"GET / HT", "TP/1.1\r\nHost: evil.example\r\n\r\n"},
		"a method of its own": {"FETCH / HT", "TP/1.1\r\nHost: evil.example\r\n\r\n"},
		"late, allowed":       {"GET / HT", "TP/1.1\r\nHost: good.example\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := defaultLimits()
			l.line = time.Millisecond
			w := newLimitedWorld(t, l, "good.example:80")
			seen := make(chan string, 1)
			w.serve(goodAddr+":80", func(c net.Conn) {
				b, _ := io.ReadAll(c)
				seen <- string(b)
			})
			w.talk(pieces...)
			w.ended(1)
			if got := <-seen; strings.Contains(got, "TP/1.1") || len(w.denied()) != 1 {
				t.Errorf("the server got %q, denials %v", got, w.denied())
			}
		})
	}
}

func TestSlowHeader(t *testing.T) {
	l := defaultLimits()
	l.first = 50 * time.Millisecond
	w := newLimitedWorld(t, l, "good.example:80")
	w.serve(goodAddr+":80", func(c net.Conn) { io.Copy(io.Discard, c) })
	c, err := w.reach("good.example", "80")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: ")
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("not ended")
	}
	w.ended(1)
}

// A server that closes an idle connection ends the client's wait, too.
func TestServerEndsIdleConnection(t *testing.T) {
	w := newWorld(t, "good.example:80")
	w.serve(goodAddr+":80", func(c net.Conn) {
		readHead(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	c, err := w.reach("good.example", "80")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, getGood)
	if got, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(got), "ok") {
		t.Errorf("%q, %v", got, err)
	}
	if r := w.ended(1)[0]; r.Error != "" {
		t.Errorf("record is %+v", r)
	}
}

// A server that answers before it has read the body, and closes.
func TestEarlyAnswer(t *testing.T) {
	w := newWorld(t, "good.example:80")
	w.serve(goodAddr+":80", func(c net.Conn) {
		readHead(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		closeWrite(c)
		time.Sleep(50 * time.Millisecond) // the body comes meanwhile
	})
	c, err := w.reach("good.example", "80")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 1000000\r\n\r\nsome")
	got, _ := io.ReadAll(c)
	if !strings.HasSuffix(string(got), "no") {
		t.Errorf("got %q", got)
	}
	w.ended(1)
}

// N3: a field from which servers may take another method, path or host is refused
// by name, where rules are about that.
func TestFieldsThatOverride(t *testing.T) {
	for _, test := range []struct {
		field          string
		byPath, byHost bool // refused under a rule about paths, about the host alone
	}{
		{"X-Original-URL: /secret", true, false},
		{"x_http_method_override: DELETE", true, false},
		{"Destination: /v2/x", true, false},
		{"X-Forwarded-Host: evil.example", true, true},
		{"Forwarded: for=192.0.2.1;host=evil.example", true, true},
		{"X-Forwarded-Host: good.example:80", false, false},
		{"Forwarded: for=192.0.2.1", false, false},
		{"X-Forwarded-For: 192.0.2.1", false, false},
		{"X-Ghost: evil.example", false, false},
		{"X-Request-Id: 7", false, false},
		{"Access-Control-Request-Method: DELETE", false, false},
	} {
		for rule, refused := range map[string]bool{"http://good.example/v1/**": test.byPath, "good.example:80": test.byHost} {
			w := newWorld(t, rule)
			w.serveHTTP(goodAddr+":80", tell)
			got := w.talk("GET /v1/a HTTP/1.1\r\nHost: good.example\r\n" + test.field + "\r\n\r\n")
			if refused != strings.HasPrefix(got, "HTTP/1.1 403") {
				t.Errorf("%s under %s: got %q", test.field, rule, got)
			}
			if name, _, _ := strings.Cut(test.field, ":"); refused && !strings.Contains(refusalOf(t, strings.NewReader(got)).Reason, name) {
				t.Errorf("the refusal does not name %s: %q", name, got)
			}
		}
	}
}
