package inspect

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// An upstream is the server's side of a session: one connection at a time, and a new one
// for the next request if the server has ended it. Ending the client's connection with it
// would lose requests that the client sends at the same moment.
type upstream struct {
	session  *session
	offers   []string // of the client
	protocol string   // that the server chose first
	// wantsCertificate says that the server asked for a client certificate.
	wantsCertificate atomic.Bool

	mu     sync.Mutex
	conn   *http.ClientConn
	used   bool // conn has carried requests
	stale  bool // conn takes no new requests
	closed bool
	all    []*http.ClientConn
}

// expectContinue is how long a body waits for a server that was asked whether it wants it.
const expectContinue = time.Second

func newTransport() *http.Transport {
	return &http.Transport{
		// The connection was made before, see connect.
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(connKey{}).(*tls.Conn), nil
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxResponseHeader,
		ExpectContinueTimeout:  expectContinue,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerStream: maxStream, MaxReceiveBufferPerConnection: maxConnection,
		},
	}
}

type connKey struct{}

// connect makes the first connection, with the client's offers of HTTP.
func (u *upstream) connect(ctx context.Context, offers []string) error {
	for _, offer := range offers {
		if (offer == "h2" || offer == "http/1.1") && !slices.Contains(u.offers, offer) {
			u.offers = append(u.offers, offer)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dial(ctx)
}

// dial connects to the server and verifies its certificate. It is called with the lock
// held.
func (u *upstream) dial(ctx context.Context) error {
	s := u.session
	raw, err := s.dial(ctx)
	if err != nil {
		return &UpstreamError{s.host, err}
	}
	conn := tls.Client(raw, &tls.Config{
		ServerName: s.host, RootCAs: s.inspector.config.Roots, NextProtos: u.offers,
		MinVersion: tls.VersionTLS12, ClientSessionCache: s.inspector.sessions,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			u.wantsCertificate.Store(true)
			return new(tls.Certificate), nil
		},
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return &UpstreamError{s.host, u.explain(err)}
	}
	c, err := s.inspector.transport.NewClientConn(context.WithValue(ctx, connKey{}, conn), "https", net.JoinHostPort(s.host, strconv.Itoa(int(s.port))))
	if err != nil {
		raw.Close()
		return &UpstreamError{s.host, err}
	}
	if u.conn == nil {
		u.protocol = conn.ConnectionState().NegotiatedProtocol
	}
	u.conn, u.used, u.stale = c, false, false
	u.all = append(slices.DeleteFunc(u.all, func(c *http.ClientConn) bool { return c.Err() != nil && c.InFlight() == 0 }), c)
	return nil
}

var errClientCertificate = errors.New("the server wants a client certificate, and the inspector has none: exempt the host from inspection")

// explain replaces an error of a server that did not get a client certificate.
func (u *upstream) explain(err error) error {
	if _, ok := remoteAlert(err); ok && u.wantsCertificate.Load() {
		return errClientCertificate
	}
	return err
}

// take returns a connection for one request. kept says that it has carried requests.
func (u *upstream) take() (c *http.ClientConn, kept bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, false, net.ErrClosed
	}
	if u.stale || u.conn.Err() != nil {
		ctx, cancel := context.WithTimeout(u.session.ctx, u.session.inspector.limits.handshake)
		defer cancel()
		if err := u.dial(ctx); err != nil {
			return nil, false, err
		}
	}
	kept = u.used
	u.used = true
	return u.conn, kept, nil
}

// errKept is the failure of a request on a connection that was used before: probably the
// server just closed it. The client's connection then ends without an answer, as it would
// have ended without the inspector, and the client knows whether it may try again.
var errKept = errors.New("the server closed the connection instead of answering")

// unsent is what HTTP/2 says of a request that it did not begin, because the server has
// announced the end of the connection. net/http does not export the error.
const unsent = "http2: client conn not usable"

// RoundTrip sends a request. It is sent again if the connection had ended before: if
// nothing of it was sent, or if it has no body and changes nothing.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	// Answers before the answer (103 Early Hints) have fields, too. ReverseProxy passes them
	// on after this function has seen them.
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			cleanFields(http.Header(h), x.inspector.values.search())
			return nil
		},
	}))
	for again := false; ; again = true {
		c, kept, err := u.take()
		if err != nil {
			return nil, err
		}
		res, err := c.RoundTrip(r)
		if err == nil || r.Context().Err() != nil {
			return res, err
		}
		if err.Error() == unsent && !again {
			u.retire(c)
			continue
		}
		if !kept || c.Err() == nil {
			return nil, u.explain(err)
		}
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if again || !safe || r.Body != nil && r.Body != http.NoBody {
			return nil, errors.Join(errKept, err)
		}
	}
}

// retire lets the next request have a new connection.
func (u *upstream) retire(c *http.ClientConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stale = u.stale || u.conn == c
}

func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.all {
		_ = c.Close() // there is nothing left to say
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}
