package egress

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// An acted is one request that a server acted on, as it understood it.
type acted struct {
	Method, Path, Host string
	// Closed says instead that a connection has ended, Port where the server listens.
	Closed bool
	Port   int
}

// A watched is a server that tells what it acts on.
type watched struct {
	address string
	events  chan acted
}

// until returns the requests of one connection.
func (s *watched) until(t *testing.T) []acted {
	t.Helper()
	var all []acted
	for {
		select {
		case a := <-s.events:
			if a.Closed {
				return all
			}
			all = append(all, a)
		case <-time.After(testenv.Patience):
			t.Fatalf("the connection does not end; so far %v", all)
		}
	}
}

// serveProgram runs a server that is another program.
func serveProgram(t *testing.T, argv ...string) *watched {
	t.Helper()
	testenv.Need(t, argv[0])
	c := exec.Command(argv[0], argv[1:]...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &watched{events: make(chan acted, 10_000)}
	done := make(chan struct{})
	t.Cleanup(func() { c.Process.Kill(); <-done; c.Wait() })
	ready := make(chan int, 1)
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a acted
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				continue
			}
			if a.Port > 0 {
				ready <- a.Port
				continue
			}
			s.events <- a
		}
	}()
	select {
	case port := <-ready:
		s.address = fmt.Sprintf("127.0.0.1:%d", port)
	case <-time.After(time.Minute):
		t.Fatal("the server does not start")
	}
	return s
}

// firstOf returns the first of the values that is not empty.
func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// serveGo runs the server of net/http.
func serveGo(t *testing.T) *watched {
	t.Helper()
	l := listen(t)
	s := &watched{l.Addr().String(), make(chan acted, 10_000)}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := r.Header
		s.events <- acted{
			Method: firstOf(h.Get("X-HTTP-Method-Override"), r.Method),
			Path:   firstOf(h.Get("X-Original-URL"), r.RequestURI),
			Host:   firstOf(h.Get("X-Forwarded-Host"), r.Host),
		}
		io.WriteString(rw, "ok")
	})}
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			s.events <- acted{Closed: true}
		}
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return s
}

// serveSloppy runs a server that takes whatever it can make sense of: lines that end in
// LF, words apart by any space, any method, HTTP/0.9, names with a space behind
// them or with underscores, folded lines. It ignores bodies, and reads the next
// request where the header of the last one ended.
func serveSloppy(t *testing.T) *watched {
	t.Helper()
	l := listen(t)
	s := &watched{l.Addr().String(), make(chan acted, 10_000)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				s.sloppy(c)
				c.Close()
				s.events <- acted{Closed: true}
			}()
		}
	}()
	return s
}

func (s *watched) sloppy(c net.Conn) {
	in := bufio.NewReaderSize(c, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := wordsOf([]byte(line))
		if len(words) < 2 {
			continue // it skips what is no request
		}
		header, last := map[string]string{}, ""
		for {
			line, err := in.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); err != nil || line == "" {
				break
			}
			if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
				header[last] += strings.TrimSpace(line)
				continue
			}
			name, value, _ := strings.Cut(line, ":")
			last = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
			header[last] = strings.TrimSpace(value)
		}
		a := acted{
			Method: firstOf(header["x-http-method-override"], string(words[0])),
			Path:   firstOf(header["x-original-url"], string(words[1])),
			Host:   firstOf(header["x-forwarded-host"], header["host"]),
		}
		s.events <- a
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if strings.EqualFold(header["connection"], "close") {
			return
		}
	}
}

// smuggled are texts that try to get a request past the rules.
func smuggled() map[string]string {
	const (
		start = "GET /v1/a HTTP/1.1\r\nHost: good.example\r\n"
		inner = "GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	)
	withBody := func(head, body string) string {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	post := strings.Replace(start, "GET", "POST", 1)
	texts := map[string]string{
		"GET with a body":             withBody(start, inner),
		"GET with a body, keep-alive": withBody(start+"Connection: keep-alive\r\n", inner),
		"GET with a body, HTTP/1.0":   withBody("GET /v1/a HTTP/1.0\r\nHost: good.example\r\nConnection: keep-alive\r\n", inner),
		"HEAD with a body":            withBody(strings.Replace(start, "GET", "HEAD", 1), inner),
		"POST with a body":            withBody(post, inner),
		"OPTIONS with a body":         withBody(strings.Replace(start, "GET", "OPTIONS", 1), inner),
		"a body, and a request":       withBody(start, inner) + start + "\r\n",
		"a body that is expected":     withBody(start+"Expect: 100-continue\r\n", inner),
		"a body, and an upgrade":      withBody(start+"Connection: Upgrade\r\nUpgrade: websocket\r\n", inner),
		"chunks":                      fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", post, len(inner), inner),
		"chunks of a GET":             fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", start, len(inner), inner),
		"a trailer":                   fmt.Sprintf("%sTransfer-Encoding: chunked\r\nTrailer: X-Original-URL\r\n\r\n0\r\nX-Original-URL: /secret\r\n\r\n", post),
		"CONNECT and a request":       "CONNECT good.example:80 HTTP/1.1\r\nHost: good.example:80\r\n\r\n" + inner,
		"a length with an underscore": start + "Content_Length: 34\r\n\r\nGET /v1/a HTTP/1.1\r\nX-Something: 1234GET /secret HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"no token":                    "G@T /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no token, quoted":            "\"GET\" /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no token, above ASCII":       "G\xc3\x89T /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no token, control":           "\x01GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no token, colon":             "GET: /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no token, HTTP/0.9":          "G@T /secret\r\nHost: evil.example\r\n\r\n",
		"no token, bare LF":           "G@T /secret HTTP/1.1\nHost: evil.example\n\n",
		"no token, lower case":        "g@t /secret http/1.1\nHost: evil.example\n\n",
		"no token, three more words":  "G@T /secret HTTP/1.1 x y\nHost: evil.example\n\n",
		"no token, a NUL":             "G\x00T /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"a path with a slash first":   "/ GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"an answer first":             "HTTP/1.1 200 OK\r\nHost: evil.example\r\n\r\n",
		"tabs":                        "G@T\t/secret\tHTTP/1.1\r\nHost: evil.example\r\n\r\n",
	}
	for _, name := range []string{
		"X-Original-URL", "X-Original-Url", "X_Original_URL", "X.Original.URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Original-URI", "Destination",
		"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_HTTP_Method_Override", "X-Forwarded-Method",
		"X-Forwarded-Host", "X_Forwarded_Host", "X-Forwarded-Server", "X-Host", "X-Original-Host", "X-HTTP-Host-Override", "Forwarded",
	} {
		value := "/secret"
		switch lower := strings.ToLower(name); {
		case strings.Contains(lower, "method"):
			value = "DELETE"
		case lower == "forwarded":
			value = "for=1.2.3.4;host=evil.example"
		case strings.Contains(lower, "host"), strings.Contains(lower, "server"):
			value = "evil.example"
		}
		texts["field "+name] = start + name + ": " + value + "\r\n\r\n"
		texts["field "+name+", after another"] = start + "\r\n" + start + name + ": " + value + "\r\n\r\n"
	}
	return texts
}

// harmful says what is wrong with what a server acted on, under a rule that allows
// GET and POST of /v1/** at good.example. Under a rule for the host alone only
// the host counts.
func harmful(a acted, paths bool) string {
	host, _, _ := strings.Cut(strings.ToLower(a.Host), ":")
	switch {
	case host != "" && strings.TrimSuffix(host, ".") != "good.example":
		return "another host"
	case !paths:
	case a.Method != http.MethodGet && a.Method != http.MethodPost:
		return "another method"
	case !strings.HasPrefix(strings.TrimPrefix(a.Path, "http://good.example"), "/v1/"):
		return "another path"
	}
	return ""
}

// N3: whatever a client sends, no server acts on a request that the rules
// refuse: not Go's, not lenient ones.
func TestNoServerActsOnWhatIsRefused(t *testing.T) {
	servers := map[string]func(*testing.T) *watched{
		"Go":     serveGo,
		"sloppy": serveSloppy,
		"Python": func(t *testing.T) *watched { return serveProgram(t, "/usr/bin/python3", "testdata/servers/server.py") },
		"Node":   func(t *testing.T) *watched { return serveProgram(t, "node", "testdata/servers/server.js") },
	}
	rules := map[string][]string{
		"paths": {"GET http://good.example/v1/**", "POST http://good.example/v1/**"},
		"host":  {"good.example:80"},
	}
	for serverName, serve := range servers {
		t.Run(serverName, func(t *testing.T) {
			server := serve(t)
			attack := func(t *testing.T, name, kind, text string) {
				t.Helper()
				w := newWorld(t, rules[kind]...)
				w.servers["tcp "+goodAddr+":80"] = server.address
				w.talk(text)
				w.ended(1)
				for _, a := range server.until(t) {
					if why := harmful(a, kind == "paths"); why != "" {
						t.Errorf("%s: the server acted on %+v (%s); sent was %q", name, a, why, text)
					}
				}
			}
			for kind := range rules {
				t.Run(kind, func(t *testing.T) {
					for name, text := range smuggled() {
						attack(t, name, kind, text)
					}
				})
				t.Run(kind+", mixed", func(t *testing.T) {
					random := rand.New(rand.NewPCG(1, uint64(len(kind))))
					for range 150 {
						attack(t, "mixed", kind, mixed(random))
					}
				})
			}
			// The control: unguarded, the server acts on what is refused.
			t.Run("control", func(t *testing.T) {
				w := newWorld(t, "*", goodAddr)
				w.servers["tcp "+goodAddr+":80"] = server.address
				w.talk("GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n")
				w.ended(1)
				if got := server.until(t); len(got) != 1 || harmful(got[0], true) == "" {
					t.Errorf("the server acted on %+v", got)
				}
			})
		})
	}
}

// mixed makes a text of pieces that servers read in different ways.
func mixed(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var b strings.Builder
	for range 1 + r.IntN(3) {
		end := pick("\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n")
		b.WriteString(pick("", "", "", "\r\n", " ", "\n"))
		b.WriteString(pick("GET", "GET", "POST", "G@T", "get", "CONNECT", "OPTIONS", "GET\x00", "PRI", "(GET)"))
		b.WriteString(pick(" ", " ", " ", "\t", "  ", "\v", "\xa0"))
		b.WriteString(pick("/v1/a", "/v1/a", "/secret", "/v1/../secret", "/v1/%2e%2e/secret", "http://good.example/v1/a", "http://evil.example/secret", "*", "//evil.example/secret", "/v1/a?x=/secret", "/v1/\\..\\secret", "/v1/a#/secret", "/v1/a;/../../secret"))
		b.WriteString(pick(" HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0", "", " HTTP/2.0", " HTTP/1.1 x", " RTSP/1.0", " http/1.1"))
		b.WriteString(end)
		for range r.IntN(5) {
			b.WriteString(pick("Host", "Host", "host", "Host ", " Host", "Content-Length", "Content-Length", "Content_Length", "Transfer-Encoding", "Transfer-Encoding ", "Connection", "X", "X-Original-URL", "X-Forwarded-Host", "Expect", "Upgrade", "Trailer", "X-HTTP-Method-Override"))
			b.WriteString(pick(":", ": ", ": ", ":\t", " : ", ":\r\n "))
			b.WriteString(pick("good.example", "good.example", "evil.example", "5", "48", "0", "-1", "0x5", "chunked", "chunked, identity", "identity", "close", "keep-alive", "keep-alive, Content-Length", "upgrade", "/secret", "websocket", "h2c", "100-continue", "DELETE", "evil.example\r\nHost: good.example", "1\x002"))
			b.WriteString(pick("\r\n", "\r\n", "\r\n", end))
		}
		if r.IntN(2) == 0 {
			b.WriteString("Host: good.example\r\n")
		}
		b.WriteString(pick("\r\n", "\r\n", end))
		b.WriteString(pick("", "", "hello", "0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n", "30\r\nGET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
	}
	return b.String()
}
