// Package inspection says what is looked for inside TLS, and what is reported of it. It is what
// the rest of cloche knows of package inspect, which does that: linking crypto/tls and net/http
// makes each start of cloche a tenth slower, so only cloche-https does.
package inspection

import (
	"context"
	"net"
	"time"
)

// An Inspector ends TLS for the connections of one session.
type Inspector interface {
	// CertificatePEM returns the certificate that clients in the sandbox have to trust.
	CertificatePEM() []byte
	// JavaTrustStore returns a trust store for Java with that certificate and those of PEM
	// bundles.
	JavaTrustStore(bundles ...[]byte) ([]byte, error)
	// Serve carries one connection to its end and closes it. hello is what the client has sent
	// so far, at least its ClientHello. dial connects to the server.
	Serve(ctx context.Context, client net.Conn, hello []byte, host string, port uint16, dial func(context.Context) (net.Conn, error)) error
}

// Open makes an inspector.
type Open func(Config) (Inspector, error)

// A Config says what to inspect for. The contexts that its functions get are made from that of Serve.
type Config struct {
	Secrets []Secret
	// Judge returns an error for a request that is not allowed. A *Refusal has the answer
	// that the client gets.
	Judge func(context.Context, Request) error
	// Lenient reports hosts that have no rules about methods and paths, so that it does not
	// matter how the server reads a request.
	Lenient func(ctx context.Context, host string, port uint16) bool
	// Record is called after each request, also after a refused one.
	Record func(context.Context, Exchange)
	// Misuse is called when a placeholder was sent where it does not belong, after the
	// request was refused.
	Misuse func(context.Context, Misuse)
}

// A Request is what rules judge. It never contains a value of a secret.
type Request struct {
	Host   string
	Port   uint16
	Method string
	// Path is the decoded path. Unless Config.Lenient reports the host, servers read it
	// in one way only; parameters behind semicolons are still in it.
	Path string
	// Target is path and query as they will stand in the request line.
	Target string
}

// A Secret is replaced in requests to its hosts.
type Secret struct {
	Name        string // for records
	Placeholder string
	// Value is asked at the moment of use. The inspector clears the bytes after use. An
	// error is recorded, and must not contain the value; the client does not get it.
	Value func(ctx context.Context) ([]byte, error)
	Hosts func(host string, port uint16) bool
	// Places are where the placeholder may stand. The default is the field Authorization,
	// or no place if AWS is set.
	Places []Place
	// AWS, if not nil, makes requests signed with Placeholder be signed again with Value.
	AWS *AWS
}

// A Place is one part of a request. Exactly one of its fields is set.
type Place struct {
	Header string // the name of a field
	Query  string // the name of a parameter, whose whole value is the placeholder
	// JSON is the name of a member of a JSON body, whose whole value is the placeholder.
	// "a.b" is the member b of the member a.
	JSON string
}

// An Exchange is one request and its answer.
type Exchange struct {
	Host           string
	Port           uint16
	Method, Path   string // Path is as it was sent, without the query
	Status         int    // 0: the client got no answer
	Sent, Received int64  // bytes of the bodies
	Secrets        []string
	Refused        bool
	Reported       bool // the refusal is one of Config.Judge, or Config.Misuse was called
	// Opaque says that the answer was not searched for values, because it has a content
	// coding that the inspector cannot open.
	Opaque bool
	Start  time.Time
	End    time.Time
	Err    error
}

// A Misuse is a placeholder that was sent where it does not belong: to a host that is not
// its secret's, or in another place. Where names the place, such as "the field X-Key".
type Misuse struct {
	Secret       string
	Host         string
	Port         uint16
	Method, Path string
	Where        string
	// Foreign says that the host is none of the secret's: somebody tries to send the
	// secret elsewhere.
	Foreign bool
}

// A Refusal is an error of Config.Judge with the answer that the client gets.
type Refusal struct {
	Text string // for records
	JSON []byte // the body of the answer 403
}

func (r *Refusal) Error() string { return r.Text }

// AWS names what belongs to a secret access key. Requests to AWS do not contain the key:
// they are signed with it (Signature Version 4). The sandbox signs with the placeholder;
// the inspector verifies that signature and replaces it by one with the key.
type AWS struct {
	KeyPlaceholder string // the access key ID that the sandbox has
	KeyID          func(context.Context) ([]byte, error)
	// TokenPlaceholder is the session token that the sandbox has, or "".
	TokenPlaceholder string
	Token            func(context.Context) ([]byte, error)
}
