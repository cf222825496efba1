package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A session is one connection of a client.
type session struct {
	inspector *Inspector
	host      string
	port      uint16
	dial      func(context.Context) (net.Conn, error)
	ctx       context.Context
	upstream  *upstream
	requests  atomic.Int64

	mu       sync.Mutex
	ended    bool
	handlers sync.WaitGroup
}

// Serve carries one TLS connection to its end and closes it. hello are the bytes of the
// client that were read so far: at least its ClientHello, by whose name the connection was
// judged. dial connects to the server; it is called again only if the server ends the
// connection while the client's remains.
//
// Errors are a *TrustError if the client rejected the certificate, an *UpstreamError if the
// server could not be reached or verified, and ErrUnused if there was no request. What goes
// wrong with single requests is in their records.
func (i *Inspector) Serve(ctx context.Context, client net.Conn, hello []byte, host string, port uint16, dial func(context.Context) (net.Conn, error)) error {
	run := ctx
	ctx, cancel := context.WithCancel(run)
	defer cancel()
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	s := &session{inspector: i, host: normalHost(host), port: port, dial: dial, ctx: ctx}
	s.upstream = &upstream{session: s}
	defer s.upstream.close()
	conn, err := s.handshake(&greeted{Conn: client, ahead: hello})
	if err != nil {
		return err
	}
	s.serve(conn, cancel)
	if s.requests.Load() == 0 && run.Err() == nil {
		return ErrUnused
	}
	return nil
}

// normalHost returns a name as it is compared.
func normalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// A greeted connection gives back the bytes that were read from it.
type greeted struct {
	net.Conn
	ahead []byte
	muted bool
}

func (g *greeted) Read(b []byte) (int, error) {
	if len(g.ahead) > 0 {
		n := copy(b, g.ahead)
		g.ahead = g.ahead[n:]
		return n, nil
	}
	return g.Conn.Read(b)
}

func (g *greeted) Write(b []byte) (int, error) {
	if g.muted {
		return len(b), nil
	}
	return g.Conn.Write(b)
}

// reject sends a TLS alert, and then nothing more: crypto/tls itself would only say
// internal_error.
func (g *greeted) reject(alert uint8) {
	_, _ = g.Conn.Write([]byte{21, 3, 3, 0, 2, 2, alert}) // the client may be gone
	g.muted = true
}

// handshake connects to the server with the protocols that the client offers, and then
// answers the client with what the server chose.
func (s *session) handshake(client *greeted) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.inspector.limits.handshake)
	defer cancel()
	var failed error
	conn := tls.Server(client, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config, alert, err := s.answerHello(ctx, hello)
			if err != nil {
				failed = err
				client.reject(alert)
			}
			return config, err
		},
	})
	err := conn.HandshakeContext(ctx)
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		if alert, ok := rejects(err); ok {
			return nil, &TrustError{Host: s.host, Alert: alert}
		}
		return nil, fmt.Errorf("the TLS handshake with the client, for %s: %w", s.host, err)
	}
	return conn, nil
}

const alertUnrecognizedName = 112

func (s *session) answerHello(ctx context.Context, hello *tls.ClientHelloInfo) (*tls.Config, uint8, error) {
	if name := hello.ServerName; name != "" && normalHost(name) != s.host {
		return nil, alertUnrecognizedName, fmt.Errorf("the client asks for %s on a connection to %s", visible(name), s.host)
	}
	leaf, err := s.inspector.authority.leaf(s.host)
	if err != nil {
		return nil, alertInternalError, err
	}
	if err := s.upstream.connect(ctx, hello.SupportedProtos); err != nil {
		return nil, alertFor(err), err
	}
	config := &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	switch protocol := s.upstream.protocol; {
	case protocol != "":
		config.NextProtos = []string{protocol}
	case len(hello.SupportedProtos) > 0 && !slices.Contains(hello.SupportedProtos, "http/1.1"):
		// crypto/tls refuses the client: what it wants to speak is not inspected.
		config.NextProtos = []string{"http/1.1"}
	}
	return config, 0, nil
}

type tlsCertificateError = tls.CertificateVerificationError

// alertFor returns the alert that says best why the server was not accepted.
func alertFor(err error) uint8 {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var bad *tlsCertificateError
	code, remote := remoteAlert(err)
	switch {
	case errors.As(err, &unknown):
		return alertUnknownCA
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return alertCertificateExpired
	case errors.As(err, &bad):
		return alertBadCertificate
	case remote:
		return code
	}
	return alertInternalError
}

// serve carries the requests of the connection. net/http parses them.
func (s *session) serve(conn *tls.Conn, cancel context.CancelFunc) {
	l := &oneConn{conn: conn, ended: make(chan struct{})}
	i := s.inspector
	server := &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: i.limits.header,
		IdleTimeout:       i.limits.idle,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerStream: maxStream, MaxReceiveBufferPerConnection: maxConnection,
		},
		DisableGeneralOptionsHandler: true, // OPTIONS * is the server's
		BaseContext:                  func(net.Listener) context.Context { return s.ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				l.hijacked.Store(state == http.StateHijacked)
				l.end()
			}
		},
	}
	_ = server.Serve(l) // it ends with the listener
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	// A connection that was hijacked lives as long as its handler. All other handlers
	// have lost their client.
	if !l.hijacked.Load() {
		cancel()
	}
	s.handlers.Wait()
}

// begin reports whether a handler may still start.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.handlers.Add(1)
	return true
}

// oneConn is a listener with a single connection.
type oneConn struct {
	conn     net.Conn
	given    atomic.Bool
	hijacked atomic.Bool
	once     sync.Once
	ended    chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.given.CompareAndSwap(false, true) {
		return l.conn, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

// end ends the listener: its connection needs no more care of the server.
func (l *oneConn) end() { l.once.Do(func() { close(l.ended) }) }

func (l *oneConn) Close() error {
	l.end()
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }
