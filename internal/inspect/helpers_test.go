package inspect

import (
	"bufio"
	"compress/zlib"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// TestMain finds goroutines that connections leave behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

const (
	apiHost     = "api.example.com"
	placeholder = "ghp_Pl4ceHolderPl4ceHolderPl4ceHolder00"
	secretValue = "ghp_S3cretV4lueS3cretV4lueS3cretV4lue99"
)

// A world has a server of the test's own, and an inspector between it and clients.
type world struct {
	t         testing.TB
	inspector *Inspector
	host      string
	gate      net.Listener
	server    *http.Server
	address   string // of the server
	roots     *x509.CertPool
	clientTLS *tls.Config

	mu        sync.Mutex
	exchanges []Exchange
	misuses   []Misuse
	results   []error
	dials     int
	seen      []string // what the server got, by say
	serving   sync.WaitGroup
}

type option func(*world, *Config, *tls.Config)

// newWorld runs a server with HTTP/2 and HTTP/1.1 behind an inspector.
func newWorld(t testing.TB, handler http.HandlerFunc, options ...option) *world {
	t.Helper()
	w := &world{t: t, host: apiHost}
	cert, roots := certificate(t, apiHost, "localhost")
	w.roots = roots
	serverTLS := &tls.Config{Certificates: []tls.Certificate{cert}}
	config := Config{Roots: roots,
		Record: func(_ context.Context, e Exchange) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.exchanges = append(w.exchanges, e)
		},
		Misuse: func(_ context.Context, m Misuse) { w.mu.Lock(); defer w.mu.Unlock(); w.misuses = append(w.misuses, m) },
	}
	for _, o := range options {
		o(w, &config, serverTLS)
	}
	var err error
	if w.inspector, err = New(config); err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	w.address = l.Addr().String()
	w.server = &http.Server{Handler: handler, TLSConfig: serverTLS, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	go w.server.ServeTLS(l, "", "")
	w.serveGate()
	return w
}

// serveGate accepts clients as the gate of a sandbox does.
func (w *world) serveGate() {
	l := listen(w.t)
	w.gate = l
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.serving.Go(func() {
				hello := make([]byte, 4096)
				n, err := c.Read(hello)
				if err != nil {
					c.Close()
					return
				}
				err = w.inspector.Serve(ctx, c, hello[:n], w.host, 443, w.dialServer)
				w.mu.Lock()
				w.results = append(w.results, err)
				w.mu.Unlock()
			})
		}
	}()
	w.t.Cleanup(func() {
		w.gate.Close()
		w.server.Close()
		cancel()
		w.serving.Wait()
	})
}

func (w *world) dialServer(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	w.dials++
	w.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", w.address)
}

// client returns a client that trusts the inspector. h2 says whether it offers HTTP/2.
func (w *world) client(h2 bool) *http.Client {
	config := &tls.Config{RootCAs: w.trust(), ServerName: w.host}
	if w.clientTLS != nil {
		config = w.clientTLS.Clone() // net/http changes it
	}
	tr := &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: h2, DisableCompression: true, ExpectContinueTimeout: time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.gate.Addr().String())
		},
	}
	if !h2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP1(true)
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) trust() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.inspector.CertificatePEM())
	return pool
}

// raw returns a TLS connection of HTTP/1.1 for bytes of the test's own.
func (w *world) raw() *tls.Conn {
	w.t.Helper()
	c, err := tls.Dial("tcp", w.gate.Addr().String(), &tls.Config{RootCAs: w.trust(), ServerName: w.host, NextProtos: []string{"http/1.1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// say remembers what the server got.
func (w *world) say(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, s)
}

func (w *world) got() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.seen...)
}

func (w *world) misused() []Misuse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Misuse(nil), w.misuses...)
}

func (w *world) recorded(n int) []Exchange {
	w.t.Helper()
	var got []Exchange
	testenv.Eventually(w.t, "records of the requests", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = append([]Exchange(nil), w.exchanges...)
		return len(got) >= n
	})
	return got
}

// result waits for the error with which the first connection ended.
func (w *world) result() error {
	w.t.Helper()
	var err error
	testenv.Eventually(w.t, "the end of a connection", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.results) == 0 {
			return false
		}
		err = w.results[0]
		return true
	})
	return err
}

// withSecret adds a secret of the host of the world.
func withSecret(places ...Place) option {
	return func(_ *world, c *Config, _ *tls.Config) {
		c.Secrets = append(c.Secrets, Secret{Name: "TOKEN", Placeholder: placeholder, Value: give(secretValue), Places: places,
			Hosts: func(host string, port uint16) bool { return host == apiHost && port == 443 }})
	}
}

func give(value string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(value), nil }
}

// withHost makes connections be for another host, which no secret has.
func withHost(host string) option {
	return func(w *world, c *Config, s *tls.Config) {
		w.host = host
		cert, roots := certificate(w.t, host)
		s.Certificates = []tls.Certificate{cert}
		w.roots, c.Roots = roots, roots
	}
}

func withJudge(judge func(Request) error) option {
	return func(_ *world, c *Config, _ *tls.Config) {
		c.Judge = func(_ context.Context, r Request) error { return judge(r) }
	}
}

func withProtocols(names ...string) option {
	return func(_ *world, _ *Config, s *tls.Config) { s.NextProtos = names }
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func certificate(t testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	return certificateAt(t, time.Now(), names...)
}

func certificateAt(t testing.TB, at time.Time, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "a server of the test"},
		NotBefore: at.Add(-time.Hour), NotAfter: at.Add(time.Hour), DNSNames: names, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// both runs a test over HTTP/1.1 and over HTTP/2.
func both(t *testing.T, test func(t *testing.T, h2 bool)) {
	t.Helper()
	for _, h2 := range []bool{false, true} {
		name := "http1"
		if h2 {
			name = "http2"
		}
		t.Run(name, func(t *testing.T) { test(t, h2) })
	}
}

// do sends a request and returns the answer with its body.
func do(t testing.TB, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("the body of the answer: %v", err)
	}
	return res, string(body)
}

func request(t testing.TB, method, target string, body io.Reader, fields ...string) *http.Request {
	t.Helper()
	if !strings.Contains(target, "://") {
		target = "https://" + apiHost + target
	}
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// denied checks the answer to a refused request, and returns it.
func denied(t testing.TB, res *http.Response, body string, status int) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || res.StatusCode != status || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("not a denial with status %d: %d %s", status, res.StatusCode, body)
	}
	return a
}

// readAnswer reads an answer from a raw connection.
func readAnswer(t testing.TB, c net.Conn) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

var errRefusedByTest = errors.New("refused by the test")

func newZlib(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
