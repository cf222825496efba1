package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

func TestProtocolIsMirrored(t *testing.T) {
	for _, c := range []struct {
		name           string
		server         []string
		h2             bool
		protocol       string
		upstreamIsHTTP string
	}{
		{"both speak HTTP/2", []string{"h2", "http/1.1"}, true, "HTTP/2.0", "HTTP/2.0"},
		{"the client does not", []string{"h2", "http/1.1"}, false, "HTTP/1.1", "HTTP/1.1"},
		{"the server does not", []string{"http/1.1"}, true, "HTTP/1.1", "HTTP/1.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto+" "+r.Host) }, withProtocols(c.server...))
			client := w.client(c.h2)
			for range 3 {
				res, body := do(t, client, request(t, "GET", "/x?a=1", nil))
				if res.Proto != c.protocol || body != c.upstreamIsHTTP+" "+apiHost {
					t.Errorf("the client got %s, the server %q", res.Proto, body)
				}
			}
			if w.dials != 1 {
				t.Errorf("%d connections to the server for one of the client", w.dials)
			}
			leaf := w.leafOf(t)
			if !slices.Equal(leaf.DNSNames, []string{apiHost}) || len(leaf.IPAddresses) != 0 || leaf.NotAfter.Sub(leaf.NotBefore) > 7*24*time.Hour {
				t.Errorf("the certificate is for %v until %v", leaf.DNSNames, leaf.NotAfter)
			}
			e := w.recorded(3)[0]
			if e.Host != apiHost || e.Port != 443 || e.Method != http.MethodGet || e.Path != "/x" || e.Status != http.StatusOK || e.Received == 0 {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

// leafOf returns the certificate that a client gets.
func (w *world) leafOf(t *testing.T) *x509.Certificate {
	t.Helper()
	c := w.raw()
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

func TestClientWithoutALPN(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	c, err := tls.Dial("tcp", w.gate.Addr().String(), &tls.Config{RootCAs: w.trust(), ServerName: apiHost})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", apiHost)
	if res, body := readAnswer(t, c); res.StatusCode != http.StatusOK || body != "HTTP/1.1" || c.ConnectionState().NegotiatedProtocol != "" {
		t.Errorf("got %s %q", res.Status, body)
	}
}

func TestOtherProtocolIsRefused(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	_, err := tls.Dial("tcp", w.gate.Addr().String(), &tls.Config{RootCAs: w.trust(), ServerName: apiHost, NextProtos: []string{"postgresql"}})
	if err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("a client of another protocol got %v", err)
	}
}

// A server that the client would have refused is refused.
func TestBadServerCertificates(t *testing.T) {
	untrusted, _ := certificate(t, apiHost)
	otherName, otherRoots := certificate(t, "other.example.com")
	expired, expiredRoots := certificateAt(t, time.Now().Add(-48*time.Hour), apiHost)
	for _, c := range []struct {
		name  string
		cert  tls.Certificate
		roots *x509.CertPool
		alert string
	}{
		{"unknown authority", untrusted, nil, "unknown certificate authority"},
		{"another name", otherName, otherRoots, "bad certificate"},
		{"expired", expired, expiredRoots, "expired certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }, func(_ *world, config *Config, s *tls.Config) {
				s.Certificates = []tls.Certificate{c.cert}
				if c.roots != nil {
					config.Roots = c.roots
				}
			})
			_, err := w.client(true).Do(request(t, "GET", "/", nil))
			if err == nil || !strings.Contains(err.Error(), c.alert) {
				t.Errorf("the client got %v, not %q", err, c.alert)
			}
			var up *UpstreamError
			var cert *tls.CertificateVerificationError
			if err := w.result(); !errors.As(err, &up) || up.Host != apiHost || !errors.As(err, &cert) {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
}

func TestServerIsNotThere(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.server.Close()
	w.address = closedPort(t)
	if _, err := w.client(true).Do(request(t, "GET", "/", nil)); err == nil {
		t.Error("a client got an answer")
	}
	var up *UpstreamError
	if err := w.result(); !errors.As(err, &up) {
		t.Errorf("Serve returned %v", err)
	}
}

func closedPort(t *testing.T) string {
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func TestServerWantsClientCertificate(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, func(_ *world, _ *Config, s *tls.Config) {
			s.ClientAuth, s.MaxVersion = tls.RequireAnyClientCert, version
		})
		res, err := w.client(false).Do(request(t, "GET", "/", nil))
		if version == tls.VersionTLS13 { // the server says it after the handshake
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "exempt the host") {
				t.Errorf("got %s %s", res.Status, body)
			}
			continue
		}
		if err == nil {
			t.Error("the client got an answer")
		}
		if err := w.result(); !errors.Is(err, errClientCertificate) {
			t.Errorf("Serve returned %v", err)
		}
	}
}

// Clients that pin a certificate, or bring their own roots, are distinguished from others.
func TestClientDoesNotTrust(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
		w.clientTLS = &tls.Config{RootCAs: w.roots, ServerName: apiHost, MaxVersion: version}
		if _, err := w.client(true).Do(request(t, "GET", "/", nil)); err == nil {
			t.Error("the client trusted the inspector")
		}
		var trust *TrustError
		if err := w.result(); !errors.As(err, &trust) || trust.Host != apiHost || !strings.Contains(err.Error(), "exempt") {
			t.Errorf("Serve returned %v", err)
		}
	}
}

func TestUnusedConnection(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.raw().Close()
	if err := w.result(); !errors.Is(err, ErrUnused) {
		t.Errorf("Serve returned %v", err)
	}
}

func TestHelloForAnotherHost(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	_, err := tls.Dial("tcp", w.gate.Addr().String(), &tls.Config{RootCAs: w.trust(), ServerName: "other.example.com"})
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") || w.dials != 0 {
		t.Errorf("the client got %v, and the server %d connections", err, w.dials)
	}
}

func TestHostDiffers(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }, withSecret())
		client := w.client(h2)
		for host, status := range map[string]int{
			"other.example.com": 421, apiHost: 200, "API.example.COM": 200, apiHost + ".": 200, apiHost + ":443": 200,
			apiHost + ":8443": 421, "api.example.com.evil.example": 421, "127.0.0.1": 421,
		} {
			r := request(t, "GET", "/", nil)
			r.Host = host
			res, body := do(t, client, r)
			if res.StatusCode != status {
				t.Errorf("%s: %d %s", host, res.StatusCode, body)
			}
		}
		if len(w.misused()) != 0 {
			t.Errorf("misuses: %+v", w.misused())
		}
		// Domain fronting with a placeholder.
		r := request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder)
		r.Host = "other.example.com"
		if res, body := do(t, client, r); res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%d %s", res.StatusCode, body)
		}
		if m := w.misused(); len(m) != 1 || !m[0].Foreign {
			t.Errorf("misuses: %+v", m)
		}
	})
}

func TestAltSvcIsRemoved(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("X-Other", "stays")
	})
	res, _ := do(t, w.client(true), request(t, "GET", "/", nil))
	if res.Header.Get("Alt-Svc") != "" || res.Header.Get("X-Other") != "stays" {
		t.Errorf("got %v", res.Header)
	}
}

// A body goes through in pieces, without being held, in both directions.
func TestStreamsAndTrailers(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			w.WriteHeader(http.StatusOK)
			rc.Flush()
			b := make([]byte, 64)
			for {
				n, err := r.Body.Read(b)
				if n > 0 {
					w.Write(bytes.ToUpper(b[:n]))
					rc.Flush()
				}
				if err != nil {
					break
				}
			}
			w.Header().Set("Grpc-Status", "0 "+r.Trailer.Get("X-Sum"))
		}, withSecret())
		in, out := io.Pipe()
		r := request(t, "POST", "/echo", in, "Content-Type: application/grpc", "TE: trailers", "Authorization: Bearer "+placeholder)
		r.Trailer = http.Header{"X-Sum": nil}
		res, err := w.client(h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b := make([]byte, 64)
		for _, word := range []string{"one", "ghp_", "three"} {
			fmt.Fprint(out, word+".")
			n, err := io.ReadAtLeast(res.Body, b, len(word)+1)
			if err != nil || string(b[:n]) != strings.ToUpper(word)+"." {
				t.Fatalf("%q came back as %q, %v", word, b[:n], err)
			}
		}
		r.Trailer.Set("X-Sum", "13")
		out.Close()
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 {
			t.Errorf("the end: %q, %v", rest, err)
		}
		if got := res.Trailer.Get("Grpc-Status"); got != "0 13" {
			t.Errorf("the trailer is %q", got)
		}
	})
}

func TestServerSentEvents(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		next := make(chan string)
		w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for s := range next {
				io.WriteString(w, "data: "+s+"\n\n")
				http.NewResponseController(w).Flush()
			}
		}, withSecret())
		go func() { next <- "0" }()
		res, err := w.client(h2).Do(request(t, "GET", "/", nil, "Authorization: token "+placeholder))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b := make([]byte, 9)
		for n := range 3 {
			if n > 0 {
				next <- fmt.Sprint(n)
			}
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != fmt.Sprintf("data: %d\n\n", n) {
				t.Fatalf("event %d: %q, %v", n, b, err)
			}
		}
		close(next)
	})
}

func TestLargeBodies(t *testing.T) {
	const size = 32 << 20
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			h := sha256.New()
			n, _ := io.Copy(h, r.Body)
			w.Header().Set("X-Sum", fmt.Sprintf("%d %x", n, h.Sum(nil)))
			io.Copy(w, io.LimitReader(zeros{}, size))
		}, withSecret())
		h := sha256.New()
		r := request(t, "PUT", "/", io.TeeReader(io.LimitReader(zeros{}, size), h), "Authorization: Bearer "+placeholder)
		r.ContentLength = size
		res, err := w.client(h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
			t.Errorf("downloaded %d bytes, %v", n, err)
		}
		if want := fmt.Sprintf("%d %x", size, h.Sum(nil)); res.Header.Get("X-Sum") != want {
			t.Errorf("uploaded %s, want %s", res.Header.Get("X-Sum"), want)
		}
		if e := w.recorded(1)[0]; e.Sent != size || e.Received != size {
			t.Errorf("recorded %d and %d bytes", e.Sent, e.Received)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestExpectContinue(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "too large", http.StatusExpectationFailed)
			return
		}
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	}, withSecret())
	client := w.client(false)
	res, body := do(t, client, request(t, "PUT", "/yes", strings.NewReader("body"), "Expect: 100-continue"))
	if res.StatusCode != http.StatusOK || body != "body" {
		t.Errorf("got %s %q", res.Status, body)
	}
	// A server that does not want the body does not get it.
	sent := &readFlag{}
	r := request(t, "PUT", "/no", sent, "Expect: 100-continue")
	r.ContentLength = 4
	if res, _ := do(t, client, r); res.StatusCode != http.StatusExpectationFailed || sent.read {
		t.Errorf("got %s, body sent: %v", res.Status, sent.read)
	}
}

type readFlag struct{ read bool }

func (f *readFlag) Read(b []byte) (int, error) { f.read = true; return copy(b, "body"), io.EOF }

func TestCancellation(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		begun, ended := make(chan struct{}), make(chan struct{})
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/abort" {
				io.WriteString(w, "a part")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		ctx, cancel := context.WithCancel(t.Context())
		r := request(t, "GET", "/wait", nil).WithContext(ctx)
		failed := make(chan error)
		client := w.client(h2)
		go func() { _, err := client.Do(r); failed <- err }()
		<-begun
		cancel()
		if err := <-failed; err == nil {
			t.Error("the request was answered")
		}
		<-ended
		res, err := client.Do(request(t, "GET", "/abort", nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("an answer that the server broke off looks complete")
		}
		res.Body.Close()
	})
}

// The connection to the client ends when the server ends its own, and no request is lost.
func TestServerClosesKeptConnections(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/last" {
				w.Header().Set("Connection", "close")
			}
			io.WriteString(w, "ok")
		})
		client := w.client(h2)
		for n := range 20 {
			path := "/"
			if n%3 == 2 {
				path = "/last"
			}
			if res, body := do(t, client, request(t, "GET", path, nil)); res.StatusCode != http.StatusOK || body != "ok" {
				t.Fatalf("request %d: %s %q", n, res.Status, body)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dials < 5 {
			t.Errorf("%d connections", w.dials)
		}
	})
}

func TestEnds(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithCancel(t.Context())
		client := w.client(h2)
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() { client.Do(request(t, "GET", "/", nil).WithContext(ctx)) })
		}
		testenv.Eventually(t, "connections", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.dials > 0 })
		cancel()
		wait.Wait()
		client.CloseIdleConnections()
		w.result()
	})
}

func TestAuthority(t *testing.T) {
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	if life := time.Until(a.cert.NotAfter); life > 10*24*time.Hour || !a.cert.NotBefore.Before(time.Now()) {
		t.Errorf("valid from %v to %v", a.cert.NotBefore, a.cert.NotAfter)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.pem())
	long := strings.Repeat("a.", 60) + "example.com"
	for _, host := range []string{apiHost, long, "192.0.2.7", "2001:db8::1"} {
		c, err := a.leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "other.example.com"}); err == nil {
			t.Errorf("the certificate of %s is good for another name", host)
		}
		if again, _ := a.leaf(host); again != c {
			t.Errorf("%s was made twice", host)
		}
	}
	for n := range maxLeaves + 10 {
		if _, err := a.leaf(fmt.Sprintf("h%d.example.com", n)); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d certificates are cached", len(a.leaves))
	}
}
