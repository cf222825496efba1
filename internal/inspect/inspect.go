package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/inspection"
)

// What the rest of cloche gives and gets is described in package inspection.
type (
	// Request is what rules judge.
	Request = inspection.Request
	// Secret is replaced in requests to its hosts.
	Secret = inspection.Secret
	// Place is a part of a request.
	Place = inspection.Place
	// AWS has what belongs to a secret access key.
	AWS = inspection.AWS
	// Exchange is one request and its answer.
	Exchange = inspection.Exchange
	// Misuse is a placeholder that was sent where it does not belong.
	Misuse = inspection.Misuse
	// Refusal is an error of Config.Judge.
	Refusal = inspection.Refusal
)

// A Config says what to inspect for. Its functions, and those of secrets, are called from
// many goroutines.
type Config struct {
	Secrets []Secret
	Roots   *x509.CertPool // nil: the host's
	// Judge returns an error for a request that is not allowed. A *Refusal has the answer
	// that the client gets. Nil allows every request.
	Judge func(context.Context, Request) error
	// Lenient reports hosts that have no rules about methods and paths. If there is a
	// Judge, requests to all other hosts are refused if servers may read their path,
	// method or host differently. Nil: no host is.
	Lenient func(ctx context.Context, host string, port uint16) bool
	// Record is called after each request, also after a refused one. It may be nil.
	Record func(context.Context, Exchange)
	// Misuse is called when a placeholder was sent where it does not belong, after the
	// request was refused. It may be nil.
	Misuse func(context.Context, Misuse)
}

// An Inspector ends TLS for the connections of one run.
type Inspector struct {
	config    Config
	authority *authority
	tokens    []token
	guard     *matcher // finds placeholders
	bySecret  [][]int  // the tokens of each secret
	json      bool     // a place is in a JSON body
	values    *vault   // finds values that were used
	buffered  chan struct{}
	transport *http.Transport
	proxies   [2]*httputil.ReverseProxy // for HTTP/1 and HTTP/2
	sessions  tls.ClientSessionCache
	limits    limits
}

// limits bound what a client or a server can hold or delay.
type limits struct {
	handshake time.Duration // of client and server together, the dialing included
	header    time.Duration // from the first byte of a request to the end of its header
	idle      time.Duration // between two requests
	value     time.Duration // for the source of a secret
}

const (
	maxHeader         = 64 << 10
	maxResponseHeader = 256 << 10
	// maxStream and maxConnection are windows of HTTP/2: so much of a stream, and of all
	// streams of a connection, waits in memory for a slow reader.
	maxStream     = 512 << 10
	maxConnection = 1 << 20
	maxStreams    = 128
	// minPlaceholder is the shortest placeholder: a shorter one could be in a request by
	// chance.
	minPlaceholder = 12
	// maxBuffered bounds the bodies that are read as a whole at the same time.
	maxBuffered = 8
)

// New makes an inspector and its authority.
func New(c Config) (*Inspector, error) {
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	i := &Inspector{
		config: c, authority: a, values: newVault(),
		buffered: make(chan struct{}, maxBuffered),
		sessions: tls.NewLRUClientSessionCache(64),
		limits:   limits{handshake: 30 * time.Second, header: 30 * time.Second, idle: 5 * time.Minute, value: 2 * time.Minute},
	}
	if err := i.readSecrets(); err != nil {
		return nil, err
	}
	i.transport = newTransport()
	i.proxies = [2]*httputil.ReverseProxy{newProxy(copyBuffer1), newProxy(copyBuffer2)}
	return i, nil
}

// CertificatePEM returns the certificate of the authority. Clients in the sandbox have to
// trust it.
func (i *Inspector) CertificatePEM() []byte { return i.authority.pem() }

// A token is a text that stands for a value: the placeholder of a secret, or of what
// belongs to a pair of AWS keys.
type token struct {
	secret int
	text   string
	value  func(context.Context) ([]byte, error)
	places []Place
	aws    bool // it names the signer in the field Authorization
}

// readSecrets checks the secrets of the configuration and prepares the search for their
// placeholders.
func (i *Inspector) readSecrets() error {
	for n := range i.config.Secrets {
		s := &i.config.Secrets[n]
		if s.Value == nil || s.Hosts == nil {
			return fmt.Errorf("the secret %s has no source or no hosts", s.Name)
		}
		places := s.Places
		if len(places) == 0 && s.AWS == nil {
			places = []Place{{Header: "Authorization"}}
		}
		for _, p := range places {
			if err := checkPlace(p); err != nil {
				return fmt.Errorf("the secret %s: %w", s.Name, err)
			}
			i.json = i.json || p.JSON != ""
		}
		tokens := []token{{secret: n, text: s.Placeholder, value: s.Value, places: places}}
		if s.AWS != nil {
			more, err := awsTokens(s.AWS, n)
			if err != nil {
				return fmt.Errorf("the secret %s: %w", s.Name, err)
			}
			tokens = append(tokens, more...)
		}
		i.bySecret = append(i.bySecret, nil)
		for _, t := range tokens {
			i.bySecret[n] = append(i.bySecret[n], len(i.tokens))
			i.tokens = append(i.tokens, t)
		}
	}
	var patterns []pattern
	for n, t := range i.tokens {
		if len(t.text) < minPlaceholder {
			return fmt.Errorf("the placeholder of the secret %s is shorter than %d bytes", i.nameOf(n), minPlaceholder)
		}
		if strings.ContainsFunc(t.text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return fmt.Errorf("the placeholder of the secret %s has a space or a byte that is not ASCII", i.nameOf(n))
		}
		for m, other := range i.tokens {
			if m != n && strings.Contains(other.text, t.text) {
				return fmt.Errorf("the placeholders of the secrets %s and %s contain each other", i.nameOf(n), i.nameOf(m))
			}
		}
		patterns = append(patterns, patternsOf(n, []byte(t.text), nil)...)
	}
	i.guard = newMatcher(patterns, nil)
	return nil
}

// nameOf returns the name of the secret of a token.
func (i *Inspector) nameOf(token int) string { return i.config.Secrets[i.tokens[token].secret].Name }

func checkPlace(p Place) error {
	set := 0
	for _, s := range []string{p.Header, p.Query, p.JSON} {
		if s != "" {
			set++
		}
	}
	if set != 1 {
		return errors.New("a place is one of a header field, a query parameter and a JSON member")
	}
	if p.Header != "" && (strings.Trim(p.Header, fieldBytes) != "" || hopByHop(p.Header)) {
		return fmt.Errorf("a secret cannot be in the header field %q", p.Header)
	}
	return nil
}

// fieldBytes are the bytes in names of fields.
const fieldBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// hopByHop reports whether a field ends at a proxy, or says where a message ends.
func hopByHop(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Host", "Content-Length":
		return true
	}
	return false
}
