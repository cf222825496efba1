package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"sync/atomic"

	"github.com/cloche-dev/cloche/internal/show"
)

// A TrustError says that a client broke off because it does not trust the certificate of
// the inspector: it has trusted certificates of its own, or expects a certain one.
type TrustError struct {
	Host  string
	Alert string // what the client said
}

func (e *TrustError) Error() string {
	return fmt.Sprintf("the client does not trust the certificate that cloche made for %s (it said %q); "+
		"let it trust the certificate of the sandbox, or exempt the host from inspection", e.Host, e.Alert)
}

// An UpstreamError says that a server was not reached, or is not who it should be.
type UpstreamError struct {
	Host string
	Err  error
}

func (e *UpstreamError) Error() string {
	var hint string
	var cert *tlsCertificateError
	if errors.As(e.Err, &cert) {
		hint = "; the client gets no certificate for a server whose own is not valid"
	}
	return "cannot open a TLS connection to " + e.Host + ": " + e.Err.Error() + hint
}

func (e *UpstreamError) Unwrap() error { return e.Err }

// ErrUnused says that a client closed its connection before its first request. Some
// clients do that because they do not trust the certificate, others open connections in
// advance.
var ErrUnused = errors.New("the client closed the connection before its first request")

// The alerts of TLS with which clients reject a certificate (RFC 8446, 6.2), and those
// that the inspector sends.
const (
	alertBadCertificate         = 42
	alertUnsupportedCertificate = 43
	alertCertificateExpired     = 45
	alertCertificateUnknown     = 46
	alertUnknownCA              = 48
	alertInternalError          = 80
)

// rejects returns the alert with which the other side rejected the certificate.
func rejects(err error) (alert string, ok bool) {
	code, ok := remoteAlert(err)
	if !ok {
		return "", false
	}
	switch code {
	case alertBadCertificate, alertUnsupportedCertificate, alertCertificateExpired, alertCertificateUnknown, alertUnknownCA:
		var op *net.OpError
		_ = errors.As(err, &op)
		return op.Err.Error(), true
	}
	return "", false
}

// remoteAlert returns the alert that the other side of a TLS connection sent. crypto/tls
// has it in an unexported type of the kind uint8.
func remoteAlert(err error) (code uint8, ok bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return 0, false
	}
	return uint8(v.Uint()), true
}

// An answer is the body of an answer that the inspector gives instead of the server.
type answer struct {
	Error   string `json:"error"`
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Subject string `json:"subject,omitempty"`
	Reason  string `json:"reason"`
}

// A denial is a request that is not sent to the server, or not to its end.
type denial struct {
	status int
	answer answer
	body   []byte // instead of answer
	misuse *Misuse
	cause  error // for the record, if it is more than the answer says
	// reported says that Config.Misuse was called.
	reported atomic.Bool
}

func (d *denial) Error() string {
	if d.cause != nil {
		return d.cause.Error()
	}
	return d.answer.Reason
}

func (d *denial) Unwrap() error { return d.cause }

const (
	ruleRequest = "network.allow"
	ruleSecrets = "secrets"
)

// deny makes a denial by a rule.
func (x *exchange) deny(status int, rule, reason string) *denial {
	return &denial{status: status, answer: answer{
		Error: "denied by cloche", Host: x.host, Port: x.port, Method: x.Method, Path: x.Path, Rule: rule, Reason: reason,
	}}
}

// misused makes a denial of a request with a placeholder where it does not belong.
func (x *exchange) misused(token int, where string) *denial {
	i := x.inspector
	s := &i.config.Secrets[i.tokens[token].secret]
	foreign := !s.Hosts(x.host, x.port)
	reason := "the placeholder of " + s.Name + " is in " + where + ", where it is not replaced; cloche does not send it"
	if foreign {
		reason = "the placeholder of " + s.Name + " is in " + where + " of a request to " + x.host + ", which is not one of its hosts; cloche does not send it"
	}
	d := x.deny(http.StatusForbidden, ruleSecrets, reason)
	d.answer.Subject = s.Name
	d.misuse = &Misuse{Secret: s.Name, Host: x.host, Port: x.port, Method: x.Method, Path: x.Path, Where: where, Foreign: foreign}
	return d
}

// failed makes a denial of a request that is allowed, but cannot be carried out.
func (x *exchange) failed(reason string, cause error) *denial {
	return &denial{status: http.StatusBadGateway, cause: cause, answer: answer{
		Error: "cloche could not send the request", Host: x.host, Port: x.port, Method: x.Method, Path: x.Path, Reason: reason,
	}}
}

// judged makes the denial of an error of Config.Judge.
func (x *exchange) judged(err error) *denial {
	d := x.deny(http.StatusForbidden, ruleRequest, err.Error())
	var r *Refusal
	if errors.As(err, &r) && len(r.JSON) > 0 {
		d.body = r.JSON
	}
	d.cause = err
	return d
}

// send gives the client the answer. The connection ends with it if the client may still be
// sending a body.
func (d *denial) send(w http.ResponseWriter, r *http.Request) {
	body := d.body
	if body == nil {
		body, _ = json.Marshal(d.answer) // it contains only strings and a number
		body = append(body, '\n')
	}
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		h.Set("Connection", "close")
	}
	w.WriteHeader(d.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// isCancelled reports whether the client or the run ended the request.
func isCancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.Canceled)
}

func visible(s string) string { return show.Visible(s) }
