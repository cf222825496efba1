package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
)

// asked makes a world whose rules can be added to by an answer. Each question is
// sent to the channel; the answer that comes back is what is given, "" is no.
func asked(t *testing.T, rules ...string) (w *world, questions chan plan.Denial, answers chan string) {
	t.Helper()
	w = newWorld(t, rules...)
	questions, answers = make(chan plan.Denial, 16), make(chan string)
	given := newWorld(t, rules...) // the rules of the attempt alone
	w.gate.config.Given = func(plan.Denial) (*judge.Network, bool) { return nil, true }
	w.gate.config.Ask = func(ctx context.Context, d plan.Denial) *judge.Network {
		questions <- d
		select {
		case rule := <-answers:
			if rule == "" {
				return nil
			}
			given.allow(rule)
			return given.gate.config.Judge()
		case <-ctx.Done():
			questions <- plan.Denial{Decision: plan.Decision{Op: "withdrawn"}}
			return nil
		}
	}
	return w, questions, answers
}

// N2: a client that waits is connected on yes; what it said meanwhile arrives, all
// of it, and a server that speaks first is heard.
func TestAskedConnection(t *testing.T) {
	w, questions, answers := asked(t)
	w.serve(otherAddr+":25", func(c net.Conn) {
		io.WriteString(c, "220 ready\r\n")
		echo(c)
	})
	long := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for _, early := range [][]byte{nil, []byte("\x01early\n"), append([]byte{1}, long...)} {
		c, err := w.reach("other.example", "25")
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { _, err := c.Write(early); sent <- err }()
		if d := <-questions; d.Host != "other.example" || d.Port != 25 || d.Protocol != "tcp" || d.Rule != judge.RuleNetworkAllow {
			t.Errorf("asked about %+v", d)
		}
		if len(w.resolved) > 0 && early == nil {
			t.Errorf("%q was looked up before it was allowed", w.resolved)
		}
		answers <- "tcp://other.example:25"
		go func() {
			if <-sent == nil {
				_ = c.CloseWrite()
			}
		}()
		if got, err := io.ReadAll(c); err != nil || string(got) != "220 ready\r\n"+string(early) {
			t.Errorf("of %d bytes %d came back, %v", len(early), len(got), err)
		}
	}
	for _, d := range w.denied() {
		if d.Op != plan.OpResolve {
			t.Errorf("denied: %+v", d)
		}
	}
	w.ended(1)
}

// N2: no is the refusal of old, by the protocol of the client.
func TestAskedAndRefused(t *testing.T) {
	w, questions, answers := asked(t)
	go func() {
		for range questions {
			answers <- ""
		}
	}()
	defer close(questions)
	c, err := w.reach("other.example", "80")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
	if text := refusalOf(t, c); text.Host != "other.example" {
		t.Errorf("refused: %+v", text)
	}
	if c, err = w.reach("other.example", "443"); err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(c, &tls.Config{ServerName: "other.example"}).Handshake(); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("TLS: %v", err)
	}
	if c, err = w.reach("other.example", "22"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("another port: %v", err)
	}
	connects := slices.DeleteFunc(w.denied(), func(d plan.Denial) bool { return d.Op != plan.OpConnect })
	if len(connects) != 3 || len(w.dials()) > 0 {
		t.Errorf("denied %+v, dialled %q", connects, w.dials())
	}
}

// N2: the yes opens what was asked about, and nothing by it: not the other names of
// the server, nor what is not public, nor what a rule denies.
func TestAskedGivesNoMore(t *testing.T) {
	w, questions, answers := asked(t, "!good.example", "lan.example")
	w.name("inner.example", "10.0.0.1")
	w.name("lan.example", "10.0.0.1")
	w.serveHTTP(otherAddr+":80", tell)
	w.serveHTTP("10.0.0.1:80", tell)
	for host, rule := range map[string]string{"inner.example": "inner.example:80", "other.example": "other.example:80"} {
		c, err := w.reach(host, "80")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n")
		<-questions
		answers <- rule
		refusalOf(t, c)
	}
	_, refusal := w.gate.OpenTCP(t.Context(), netip.MustParseAddrPort("198.18.0.2:40000"), netip.MustParseAddrPort("198.19.77.77:80"))
	if refusal.asks != nil {
		t.Error("an address is asked about that stands for nothing")
		_ = refusal.Close()
	}
	for _, host := range []string{"good.example", "lan.example"} {
		if c, err := w.reach(host, "22"); err == nil {
			c.Close()
			t.Errorf("%s is accepted, and nobody could allow it", host)
		}
	}
	if len(questions) > 0 {
		t.Errorf("asked about %+v", <-questions)
	}
	if slices.Contains(w.dials(), "10.0.0.1:80") {
		t.Error("a name led to what is not public")
	}
}

// N2: a client that closes, and the end of the sandbox, withdraw the question; who was
// never served is recorded too.
func TestAskedAndGone(t *testing.T) {
	w, questions, _ := asked(t)
	for _, early := range []string{"", "GET / HT"} {
		c, err := w.reach("other.example", "80")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, early)
		<-questions
		c.Close()
		if d := <-questions; d.Op != "withdrawn" {
			t.Errorf("%+v", d)
		}
	}
	_, refusal := w.gate.OpenTCP(t.Context(), netip.MustParseAddrPort("198.18.0.2:40000"), netip.MustParseAddrPort(otherAddr+":22"))
	if !refusal.Answers() || refusal.Close() != nil {
		t.Errorf("%v", refusal)
	}
	w.ended(3)
	if _, err := w.reach("other.example", "80"); err != nil {
		t.Fatal(err)
	}
	<-questions
	w.gate.Close() // which waits for all that goes on
	if d := <-questions; d.Op != "withdrawn" {
		t.Errorf("%+v", d)
	}
}

// N2: clients of proxies wait for the answer to their request.
func TestAskedThroughProxies(t *testing.T) {
	w, questions, answers := asked(t)
	w.serveHTTP(otherAddr+":80", tell)
	pool := w.serveTLS(otherAddr+":443", tell, "other.example")
	for _, scheme := range []string{"http", "socks5h"} {
		for _, url := range []string{"http://other.example/", "https://other.example/"} {
			client := w.proxyClient(scheme, &tls.Config{RootCAs: pool})
			go func() { <-questions; answers <- "other.example" }()
			if code, body := get(t, client, url); code != 200 {
				t.Errorf("%s by %s: %d %s", url, scheme, code, body)
			}
		}
	}
	c, err := net.Dial("tcp", w.proxy())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "CONNECT other.example:22 HTTP/1.1\r\nHost: other.example:22\r\n\r\n")
	<-questions
	c.Close()
	if d := <-questions; d.Op != "withdrawn" {
		t.Errorf("%+v", d)
	}
}
