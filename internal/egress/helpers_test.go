package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Addresses that are public, and in this world belong to servers of the tests.
const (
	goodAddr  = "93.184.216.10"
	otherAddr = "93.184.216.20"
)

// A world is a gate with an internet of its own behind it: names, addresses, and
// real servers on the loopback.
type world struct {
	t       testing.TB
	gate    *Gate
	mu      sync.Mutex
	judge   *judge.Network
	network plan.Network
	names   map[string][]netip.Addr
	ttl     time.Duration
	servers map[string]string
	own     []netip.Addr

	dialled, resolved []string
	connections       []plan.Connection
	denials           []plan.Denial
}

// newWorld makes a world with rules; one that begins with "!" denies.
func newWorld(t testing.TB, rules ...string) *world {
	return newLimitedWorld(t, defaultLimits(), rules...)
}

func newLimitedWorld(t testing.TB, l limits, rules ...string) *world {
	t.Helper()
	w := &world{t: t, names: map[string][]netip.Addr{}, servers: map[string]string{}, ttl: time.Minute}
	w.network.Mode = policy.NetworkUser
	w.allow(rules...)
	w.name("good.example", goodAddr)
	w.name("other.example", otherAddr)
	l.linger = min(l.linger, 200*time.Millisecond)
	w.gate = newGate(Config{
		Judge:   func() *judge.Network { w.mu.Lock(); defer w.mu.Unlock(); return w.judge },
		Resolve: w.resolve, Dial: w.dial,
		Exchange:   func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no name server") },
		Connection: func(c plan.Connection) { w.mu.Lock(); defer w.mu.Unlock(); w.connections = append(w.connections, c) },
		Denied:     func(d plan.Denial) { w.mu.Lock(); defer w.mu.Unlock(); w.denials = append(w.denials, d) },
		HostAddrs:  func() []netip.Addr { w.mu.Lock(); defer w.mu.Unlock(); return w.own },
	}, l)
	t.Cleanup(func() { w.gate.Close() })
	return w
}

// allow adds rules, as a person may while the command runs.
func (w *world) allow(rules ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rules {
		text, deny := strings.CutPrefix(r, "!")
		method, text, ok := cutMethod(text)
		e, err := policy.ParseHost(text)
		if err != nil {
			w.t.Fatal(err)
		}
		h := plan.HostPort{Host: e.Host, Port: e.Port, LastPort: e.LastPort, Protocol: e.Protocol, Methods: e.Methods, Paths: e.Paths}
		if ok {
			h.Methods = []string{method}
		}
		if deny {
			w.network.Deny = append(w.network.Deny, h)
		} else {
			w.network.Allow = append(w.network.Allow, h)
		}
	}
	n := w.network
	n.Allow, n.Deny = slices.Clone(n.Allow), slices.Clone(n.Deny)
	w.judge = judge.NewNetwork(&n)
}

func cutMethod(s string) (method, rest string, ok bool) {
	if method, rest, ok = strings.Cut(s, " "); ok {
		return method, rest, true
	}
	return "", s, false
}

func (w *world) name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = nil
	for _, a := range addrs {
		w.names[name] = append(w.names[name], netip.MustParseAddr(a))
	}
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolved = append(w.resolved, name)
	addrs, ok := w.names[name]
	if !ok {
		return nil, 0, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addrs, w.ttl, nil
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, address)
	real, ok := w.servers[network+" "+address]
	w.mu.Unlock()
	if !ok {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, real)
}

// pair returns both ends of a TCP connection.
func pair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// errRefused is a connection that is refused with a reset.
var errRefused = errors.New("refused")

// connect does what a user-mode network does for a client that connects to an
// address.
func (w *world) connect(address string) (*net.TCPConn, error) {
	w.t.Helper()
	flow, refusal := w.gate.OpenTCP(context.Background(), netip.MustParseAddrPort("198.18.0.2:40000"), netip.MustParseAddrPort(address))
	switch {
	case refusal != nil && refusal.Err() != nil:
		return nil, refusal.Err()
	case refusal != nil && !refusal.Answers():
		return nil, errRefused
	}
	client, inner := pair(w.t)
	_ = client.SetDeadline(time.Now().Add(testenv.Patience))
	if refusal != nil {
		go refusal.Serve(inner)
	} else {
		go flow.Relay(inner)
	}
	return client, nil
}

// lookup asks the gate's resolver for the addresses of a name.
func (w *world) lookup(name string) []netip.Addr {
	w.t.Helper()
	var found []netip.Addr
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		found = append(found, addressesIn(w.ask(name, kind))...)
	}
	return found
}

// ask hands a query to the gate and returns the parsed answer.
func (w *world) ask(name string, kind dnsmessage.Type) dnsmessage.Message {
	w.t.Helper()
	client := dnsClient{netip.MustParseAddrPort("127.0.0.1:40001"), netip.MustParseAddrPort("127.0.0.1:53"), "udp"}
	b := w.gate.answer(client, makeQuery(w.t, name, kind))
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		w.t.Fatalf("%s: the answer cannot be read: %v", name, err)
	}
	return m
}

func makeQuery(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 4711, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET})
	b.StartAdditionals()
	var h dnsmessage.ResourceHeader
	h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
	b.OPTResource(h, dnsmessage.OPTResource{})
	query, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return query
}

func addressesIn(m dnsmessage.Message) []netip.Addr {
	var found []netip.Addr
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			found = append(found, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			found = append(found, netip.AddrFrom16(body.AAAA))
		}
	}
	return found
}

// reach looks a name up and connects to where it leads.
func (w *world) reach(host string, port string) (*net.TCPConn, error) {
	w.t.Helper()
	addrs := w.lookup(host)
	if len(addrs) == 0 {
		return nil, errors.New("no address")
	}
	return w.connect(net.JoinHostPort(addrs[0].String(), port))
}

// client is an HTTP client in the sandbox that knows nothing of proxies.
func (w *world) client(config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(address)
		return w.reach(host, port)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testenv.Patience}
}

// ended waits until the gate has written n records, and returns them.
func (w *world) ended(n int) []plan.Connection {
	w.t.Helper()
	var got []plan.Connection
	if !testenv.Becomes(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = slices.Clone(w.connections)
		return len(got) >= n
	}) {
		w.t.Fatalf("fewer than %d connections were recorded: %+v", n, got)
	}
	return got
}

func (w *world) denied() []plan.Denial {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.denials)
}

func (w *world) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialled)
}

// readHead reads the head of a request as a server does.
func readHead(r *bufio.Reader) (*head, error) {
	left := maxHead
	line, err := readLine(r, &left)
	if err != nil {
		return nil, err
	}
	fields, err := readFields(r, &left)
	return &head{line: line, fields: fields}, err
}

// refusalOf reads a 403 and its body.
func refusalOf(t testing.TB, r io.Reader) refusalText {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	defer resp.Body.Close()
	return bodyOf(t, resp)
}

func bodyOf(t testing.TB, resp *http.Response) refusalText {
	t.Helper()
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Content-Type") != "application/json" || !resp.Close {
		t.Fatalf("got %s, %v, want 403 with JSON, closed", resp.Status, resp.Header)
	}
	var text refusalText
	if err := json.NewDecoder(resp.Body).Decode(&text); err != nil {
		t.Fatal(err)
	}
	if text.Error != "denied by cloche" {
		t.Fatalf("error is %q", text.Error)
	}
	return text
}
