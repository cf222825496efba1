package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// proxy serves the gate's proxy on a real socket.
func (w *world) proxy() string {
	w.t.Helper()
	l := listen(w.t)
	go w.gate.ServeProxy(l)
	return l.Addr().String()
}

// proxyClient is an HTTP client that uses the proxy.
func (w *world) proxyClient(scheme string, config *tls.Config) *http.Client {
	u := &url.URL{Scheme: scheme, Host: w.proxy()}
	transport := &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: config}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testenv.Patience}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// N3, W4: the same rules for clients of a proxy: plain HTTP, CONNECT, SOCKS5.
func TestProxies(t *testing.T) {
	w := newWorld(t, "good.example")
	w.serveHTTP(goodAddr+":80", tell)
	pool := w.serveTLS(goodAddr+":443", tell, "good.example")
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			client := w.proxyClient(scheme, &tls.Config{RootCAs: pool})
			for range 3 {
				for _, u := range []string{"http://good.example/a?b", "https://good.example/a?b"} {
					if code, body := get(t, client, u); code != 200 || body != `GET good.example /a?b ""` {
						t.Errorf("%s: %d %q", u, code, body)
					}
				}
			}
			_, err := client.Get("https://bad.example/")
			if err == nil || !strings.Contains(err.Error(), "Forbidden") && !strings.Contains(err.Error(), "not allowed") {
				t.Errorf("https: %v", err)
			}
		})
	}
	code, body := get(t, w.proxyClient("http", nil), "http://bad.example/x")
	if code != 403 || !strings.Contains(body, `"grant":"--allow bad.example:80"`) || !strings.Contains(body, `"host":"bad.example"`) {
		t.Errorf("%d %s", code, body)
	}
	if d := w.denied(); len(d) != 4 || d[0].Host != "bad.example" || d[0].Port != 443 || d[0].Op != plan.OpConnect {
		t.Errorf("denials are %v", d)
	}
}

// N3: a real client, told by the usual variables.
func TestCurlThroughProxies(t *testing.T) {
	testenv.Need(t, "curl")
	w := newWorld(t, "good.example:80")
	w.serveHTTP(goodAddr+":80", tell)
	address := w.proxy()
	for _, proxy := range []string{"http://", "socks5h://"} {
		curl := func(args ...string) string {
			cmd := exec.Command("curl", append([]string{"-sS", "-q", "-x", proxy + address, "--noproxy", "", "--max-time", "20"}, args...)...)
			out, err := cmd.CombinedOutput()
			return fmt.Sprint(string(out), err)
		}
		if got := curl("http://good.example/one", "http://good.example/two"); !strings.Contains(got, "/one") || !strings.Contains(got, "/two") {
			t.Errorf("%s: %s", proxy, got)
		}
		if got := curl("-T", "proxy_test.go", "http://good.example/up"); !strings.Contains(got, "PUT good.example /up") {
			t.Errorf("%s: %s", proxy, got)
		}
		if got := curl("http://bad.example/"); proxy == "http://" && !strings.Contains(got, "denied by cloche") || proxy != "http://" && !strings.Contains(got, "exit status 97") {
			t.Errorf("%s: %s", proxy, got)
		}
		if got := curl("https://bad.example/"); !strings.Contains(got, "403") && !strings.Contains(got, "exit status 97") {
			t.Errorf("%s: %s", proxy, got)
		}
	}
}

// say sends bytes to the proxy and returns all that comes back.
func (w *world) say(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.proxy())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	io.WriteString(c, text)
	c.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

func TestProxyRequestsThatAreRefused(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"CONNECT elsewhere", "CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT to a port that is not allowed", "CONNECT good.example:22 HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		{"the same with Host", "CONNECT good.example:22 HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to an address", "CONNECT " + otherAddr + ":80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to loopback", "CONNECT 127.0.0.1:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to localhost", "CONNECT localhost:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to a v6 loopback", "CONNECT [::1]:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to a mapped loopback", "CONNECT [::ffff:127.0.0.1]:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT to metadata", "CONNECT 169.254.169.254:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 403"},
		{"CONNECT with a zone", "CONNECT [fe80::1%eth0]:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT to an odd address", "CONNECT 0x7f000001:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT to a decimal address", "CONNECT 2130706433:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT without a port", "CONNECT good.example HTTP/1.0\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT to port 0", "CONNECT good.example:0 HTTP/1.0\r\n\r\n", "HTTP/1.1 400"},
		{"CONNECT with a body", "CONNECT good.example:80 HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 400"},
		{"a path", "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"https", "GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"another host", "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 403"},
		{"two hosts", "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"a user", "GET http://good.example@evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"NUL", "GET http://good.example\x00/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 400"},
		{"smuggling", "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400"},
		{"TLS", string([]byte{22, 3, 1, 0, 5, 1}), "HTTP/1.1 400"},
		{"SOCKS4", "\x04\x01\x00\x50\x01\x02\x03\x04\x00", "HTTP/1.1 400"},
		{"SOCKS5 with a password", "\x05\x01\x02", "\x05\xff"},
		{"SOCKS5 bind", "\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x07"},
		{"SOCKS5 UDP", "\x05\x01\x00\x05\x03\x00\x01\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x07"},
		{"SOCKS5 unknown address type", "\x05\x01\x00\x05\x01\x00\x09\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x08"},
		{"SOCKS5 to an address", "\x05\x01\x00\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to loopback", "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to a mapped loopback", "\x05\x01\x00\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to a name", "\x05\x01\x00\x05\x01\x00\x03\x0cevil.example\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to a name with NUL", "\x05\x01\x00\x05\x01\x00\x03\x0egood.example\x00.\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to a loopback written as a name", "\x05\x01\x00\x05\x01\x00\x03\x09127.0.0.1\x00\x50", "\x05\x00\x05\x02"},
		{"SOCKS5 to an empty name", "\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", "\x05\x00\x05\x01"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, "good.example:80")
			w.serveHTTP(goodAddr+":80", tell)
			if got := w.say(test.text); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q", got)
			}
			if len(w.dials()) != 0 || len(w.resolved) != 0 {
				t.Errorf("dialled %v, resolved %v", w.dials(), w.resolved)
			}
		})
	}
}

// The addresses behind a name are judged, and those that were are dialled.
func TestProxyRebinding(t *testing.T) {
	w := newWorld(t, "good.example")
	w.serveHTTP(goodAddr+":80", tell)
	w.name("good.example", "10.0.0.1", "127.0.0.1", goodAddr, "::1")
	if got := w.say("GET http://good.example/ HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("got %q", got)
	}
	if fmt.Sprint(w.dials()) != "["+goodAddr+":80]" || len(w.resolved) != 1 {
		t.Errorf("dialled %v, resolved %v", w.dials(), w.resolved)
	}
	w2 := newWorld(t, "good.example")
	w2.name("good.example", "169.254.169.254")
	got := refusalOf(t, strings.NewReader(w2.say("GET http://good.example/ HTTP/1.0\r\n\r\n")))
	if got.Rule != judge.RuleNetworkPrivate || got.Grant != "--allow 169.254.169.254:80" || len(w2.dials()) != 0 {
		t.Errorf("got %+v", got)
	}
}

// What runs in a tunnel is compared as on a direct connection.
func TestTunnelIsInspected(t *testing.T) {
	w := newWorld(t, "good.example:443")
	w.serveTLS(goodAddr+":443", tell, "good.example")
	c, err := net.Dial("tcp", w.proxy())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The ClientHello may come along with the request.
	io.WriteString(c, "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n"+string(clientHello(t, "evil.example")))
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	got, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(got), "HTTP/1.1 200") || !strings.HasSuffix(string(got), string(deniedAlert())) {
		t.Errorf("got %q", got)
	}
	if d := w.denied(); len(d) != 1 || d[0].Host != "evil.example" {
		t.Errorf("denials are %v", d)
	}
}

// Requests to several servers on one connection, and what is meant for the proxy alone.
func TestProxyForwards(t *testing.T) {
	w := newWorld(t, "good.example:80", "other.example:8080")
	server, second := w.record(goodAddr+":80"), w.record(otherAddr+":8080")
	request := "GET http://%s/p HTTP/1.1\r\nHost: %[1]s\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic c2VjcmV0\r\nAccept: */*\r\n\r\n"
	got := w.say(fmt.Sprintf(request, "good.example") + fmt.Sprintf(request, "good.example") + fmt.Sprintf(request, "other.example:8080") + fmt.Sprintf(request, "evil.example"))
	if strings.Count(got, "200 OK") != 3 || !strings.Contains(got, "denied by cloche") {
		t.Errorf("got %q", got)
	}
	want := "GET /p HTTP/1.1\r\nHost: good.example\r\nAccept: */*\r\n\r\n"
	if seen := <-server.seen; seen != want+want {
		t.Errorf("the server got %q", seen)
	}
	if seen := <-second.seen; !strings.HasPrefix(seen, "GET /p HTTP/1.1\r\nHost: other.example:8080\r\n") {
		t.Errorf("the second server got %q", seen)
	}
	records := w.ended(3)
	if records[0].Requests != 2 || records[1].Requests != 1 || records[2].Allowed {
		t.Errorf("records are %+v", records)
	}
}

func TestProxyFailures(t *testing.T) {
	w := newWorld(t, "*")
	w.serve(otherAddr+":80", func(c net.Conn) { readHead(bufio.NewReader(c)) })
	for _, test := range []struct{ text, want string }{
		{"GET http://good.example/ HTTP/1.0\r\n\r\n", "HTTP/1.1 502"},
		{"CONNECT good.example:80 HTTP/1.0\r\n\r\n", "HTTP/1.1 502"},
		{"GET http://gone.example/ HTTP/1.0\r\n\r\n", "HTTP/1.1 502"},
		{"GET http://other.example/ HTTP/1.0\r\n\r\n", "HTTP/1.1 502"},
		{"\x05\x01\x00\x05\x01\x00\x03\x0cgood.example\x00\x50", "\x05\x00\x05\x05"},
		{"\x05\x01\x00\x05\x01\x00\x03\x0cgone.example\x00\x50", "\x05\x00\x05\x04"},
	} {
		if got := w.say(test.text); !strings.HasPrefix(got, test.want) {
			t.Errorf("%q: got %q", test.text, got)
		}
	}
	if d := w.denied(); d != nil {
		t.Errorf("denials are %v", d)
	}
}

// A kept connection that the server has closed meanwhile is made anew.
func TestProxyReconnects(t *testing.T) {
	w := newWorld(t, "good.example")
	w.serve(goodAddr+":80", func(c net.Conn) {
		readHead(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	c, err := net.Dial("tcp", w.proxy())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	in := bufio.NewReader(c)
	for i := range 20 {
		io.WriteString(c, "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %v, %v", i, resp, err)
		}
		io.ReadAll(resp.Body)
	}
}

// Clients that say nothing, or little, do not stay.
func TestSlowProxyClients(t *testing.T) {
	l := defaultLimits()
	l.idle, l.first, l.proxyConns = 50*time.Millisecond, 50*time.Millisecond, 4
	w := newLimitedWorld(t, l, "good.example")
	address := w.proxy()
	for _, start := range []string{"", "G", "GET http://good.example/ HTTP/1.1\r\nHost: g", "\x05", "\x05\x01\x00\x05\x01\x00\x03\xff"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		io.WriteString(c, start)
		var late net.Error
		if _, err := io.ReadAll(c); errors.As(err, &late) && late.Timeout() {
			t.Errorf("%q: %v", start, err)
		}
		c.Close()
	}
}

func TestProxyConnectionsAreBounded(t *testing.T) {
	l := defaultLimits()
	l.proxyConns = 3
	w := newLimitedWorld(t, l, "good.example")
	address := w.proxy()
	for range 3 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	testenv.Eventually(t, "three connections to the proxy", func() bool { return len(w.gate.proxyConns) == 3 })
	c, err := net.Dial("tcp", address)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// Closing the gate ends proxies that wait for their server.
func TestCloseEndsProxies(t *testing.T) {
	w := newWorld(t, "good.example")
	w.gate.config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := net.Dial("tcp", w.proxy())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT good.example:80 HTTP/1.0\r\n\r\n")
	testenv.Eventually(t, "a connection through the proxy", func() bool { return len(w.gate.tcp) > 0 })
	w.gate.Close()
	if r := w.ended(1)[0]; r.Error == "" {
		t.Errorf("record is %+v", r)
	}
}
