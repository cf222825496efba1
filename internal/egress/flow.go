package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Flow is a connection that was checked and made. The caller has to call Relay or
// Close, once.
type Flow struct {
	attempt  *attempt
	verdict  judge.NetDecision
	upstream net.Conn

	err  error // how it failed, set by one goroutine before the end
	once sync.Once
}

// Close ends a flow that was not relayed, because the client is gone.
func (f *Flow) Close() error {
	f.finish()
	return nil
}

// finish closes the upstream connection and writes the record.
func (f *Flow) finish() {
	f.once.Do(func() {
		shut(f.upstream)
		a := f.attempt
		a.finish(f.err)
		give(a.gate.tcp)
		a.gate.end(f.upstream)
	})
}

// Relay carries the connection until both directions have ended, and closes both ends.
// The server's bytes pass at once; the client's first bytes are held until they are
// checked.
func (f *Flow) Relay(client net.Conn) {
	defer f.finish()
	g := f.attempt.gate
	if !g.begin(client) {
		return
	}
	defer g.end(client)
	f.relay(client, nil)
}

// relay is Relay for a client from which the bytes in ahead were already read.
func (f *Flow) relay(client net.Conn, ahead []byte) {
	defer f.finish()
	defer shut(client)
	defer context.AfterFunc(f.attempt.Ctx, func() { shut(client) })()
	if f.verdict.HTTP {
		f.relayRequests(client, ahead)
		return
	}
	d := f.startDown(client)
	first, err := f.judgedFirst(client, ahead)
	switch {
	case err == nil && first.inspected:
		_ = d.stop()
		f.inspect(client, &first)
	case err != nil:
		// If the copying from the server failed and closed the client, that error is the cause.
		if ended := d.stop(); errors.Is(err, net.ErrClosed) && ended != nil {
			err = ended
		}
		f.refuseFirst(client, &first, err)
	case first.class == isHTTP:
		_ = d.stop()
		f.relayHTTP(client, first.data)
	default:
		f.relayRaw(client, &first, d)
	}
}

// relayRequests is relay where only single requests are allowed: plain HTTP or, if they are
// inspected, in TLS. Nothing reaches the server before it is known which.
func (f *Flow) relayRequests(client net.Conn, ahead []byte) {
	if !f.attempt.gate.inspects(&f.verdict) {
		f.relayHTTP(client, ahead)
		return
	}
	if len(ahead) == 0 {
		buffer := make([]byte, firstRead)
		n, err := client.Read(buffer) // an error comes again with the next read
		if n == 0 {
			f.note(err)
			return
		}
		ahead = buffer[:n]
	}
	if !isRecord(ahead[0]) {
		f.relayHTTP(client, ahead)
		return
	}
	first, err := f.judgedFirst(client, ahead)
	if err == nil && !first.inspected {
		err = errTLS
	}
	if err != nil {
		f.refuseFirst(client, &first, err)
		return
	}
	f.inspect(client, &first)
}

// judgedFirst reads and checks the client's first bytes. If the rules allow every
// server, there is nothing to check.
func (f *Flow) judgedFirst(client net.Conn, ahead []byte) (opening, error) {
	if f.attempt.judge().AnyServer(f.attempt.dest) {
		return opening{class: opaque, data: ahead}, nil
	}
	first, err := f.readFirst(client, ahead)
	if err == nil && first.class == isTLS {
		first.inspected, err = f.attempt.judgeHello(first.hello)
	}
	return first, err
}

// A down copies from the server to the client.
type down struct {
	flow *Flow
	done chan error // nil when the server has ended its side
	// start gets the kind of the server's first bytes. It is closed when the copying
	// ends.
	start chan serverStart
}

func (f *Flow) startDown(client net.Conn) *down {
	d := &down{f, make(chan error, 1), make(chan serverStart, 1)}
	go func() {
		err := d.copyStart(client)
		if err == nil {
			err = f.countReceived(transfer(client, f.upstream))
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = nil
			closeWrite(client)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			// The client may be waiting for the server.
			abort(client, err)
		}
		close(d.start)
		d.done <- err
	}()
	return d
}

// copyStart copies the first bytes of the server until their kind is known.
func (d *down) copyStart(client net.Conn) error {
	buffer := make([]byte, firstRead)
	var seen []byte
	for {
		n, err := d.flow.upstream.Read(buffer)
		if n > 0 {
			written, failed := client.Write(buffer[:n])
			if d.flow.countReceived(int64(written), failed) != nil {
				return failed
			}
			seen = append(seen, buffer[:min(n, helloRandomEnd)]...)
			if start := startOf(seen); start != startUnknown {
				d.start <- start
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// stop ends the copying and leaves the connection open: every byte that was read has
// been written. If the copying failed before, stop returns the error.
func (d *down) stop() error {
	_ = d.flow.upstream.SetReadDeadline(time.Unix(1, 0))
	err := <-d.done
	_ = d.flow.upstream.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// relayRaw carries a protocol in which the server's bytes are not parsed.
func (f *Flow) relayRaw(client net.Conn, first *opening, d *down) {
	var err error
	switch first.class {
	case isTLS:
		err = f.sendTLS(client, first, d)
	case isHTTP2:
		err = f.sendHTTP2(newStream(client, first.data))
	default:
		err = f.sendRaw(client, first)
	}
	if _, refused := f.refuse(err); refused {
		reset(f.upstream)
		reset(client)
		<-d.done
		return
	}
	passEnd(f.upstream, err)
	f.attempt.Flushed()
	if downErr := <-d.done; err == nil || errors.Is(err, net.ErrClosed) {
		err = downErr
	}
	f.note(err)
}

// sendRaw sends the client's side of an unknown protocol.
func (f *Flow) sendRaw(client net.Conn, first *opening) error {
	if err := f.sendFirst(first); err != nil || first.ended {
		return err
	}
	return f.countSent(transfer(f.upstream, client))
}

// sendFirst sends the bytes that were held.
func (f *Flow) sendFirst(first *opening) error {
	if first.sent == len(first.data) {
		return nil
	}
	return f.send(first.data[first.sent:])
}

// send sends bytes to the server.
func (f *Flow) send(b []byte) error {
	n, err := f.upstream.Write(b)
	return f.countSent(int64(n), err)
}

func (f *Flow) countSent(n int64, err error) error {
	f.attempt.sent.Add(n)
	return err
}

func (f *Flow) countReceived(n int64, err error) error {
	f.attempt.received.Add(n)
	return err
}

// note remembers the first error of the connection. A closed connection is no error.
func (f *Flow) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) && f.err == nil {
		f.err = err
	}
}

// passEnd passes the end of one direction on to the other connection.
func passEnd(to net.Conn, err error) {
	if err == nil {
		closeWrite(to)
		return
	}
	abort(to, err)
}

// abort ends a connection because the other one failed. If the other one was reset,
// this one is too: an incomplete stream must not look complete.
func abort(c net.Conn, err error) {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT) {
		reset(c)
		return
	}
	shut(c)
}

// refuse records an error as a denial, if a rule is the cause. It reports whether it
// is.
func (f *Flow) refuse(err error) (*Refusal, bool) {
	var d *denied
	switch {
	case errors.As(err, &d):
	case errors.Is(err, errHello), isMalformed(err):
		d = &denied{verdict: *unjudgeable(err.Error()), op: plan.OpConnect}
	default:
		return nil, false
	}
	return &Refusal{gate: f.attempt.gate, denial: f.attempt.deny(d)}, true
}

// unjudgeable returns the decision about data that cannot be checked.
func unjudgeable(reason string) *judge.NetDecision {
	return &judge.NetDecision{Decision: plan.Decision{Rule: judge.RuleNetworkProtocol, Reason: reason,
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: what cannot be judged is refused"}}}
}

// An opening is the first data of a client.
type opening struct {
	class class
	data  []byte
	// sent is the number of bytes of data that were already sent to the server.
	sent  int
	hello hello
	// ended says that the client has ended its side.
	ended bool
	// inspected: it is TLS that ends in cloche.
	inspected bool
}

// firstRead is the size of reads until the protocol is known. It is small, because an
// idle connection keeps the buffer.
const firstRead = 4 << 10

const (
	errPieces = malformed("its first line comes in pieces")
	errNoEnd  = malformed("its first line has no end")
)

// A denied error says that a rule refuses the client's data.
type denied struct {
	verdict judge.NetDecision
	op      plan.Op
	// server is the name that the client sent to the server. method and path are those of a
	// request.
	server, method, path string
	// tls: the request is inside TLS.
	tls bool
}

func (d *denied) Error() string { return d.verdict.Rule }

// readFirst reads from the client until the protocol is known, and for TLS the whole
// ClientHello. It waits for the first byte without a limit: in some protocols the server
// speaks first.
//
// Text without a complete first line is sent to the server as it comes, because not
// every protocol has lines. It is still watched: if the line turns out to be a request,
// the connection ends before the server has enough of it to act on.
func (f *Flow) readFirst(client net.Conn, ahead []byte) (opening, error) {
	o := opening{data: ahead}
	l := &f.attempt.gate.limits
	begun := time.Time{}
	for {
		done, err := o.decide()
		if done || err != nil {
			_ = client.SetReadDeadline(time.Time{})
			return o, err
		}
		if begun.IsZero() && len(o.data) > 0 {
			begun = time.Now()
		}
		switch {
		case begun.IsZero():
		case o.class == isTLS || isRecord(o.data[0]):
			_ = client.SetReadDeadline(begun.Add(l.first))
		case o.sent == 0 && mayBeMethod(o.data):
			_ = client.SetReadDeadline(begun.Add(l.line))
		default:
			if err := f.release(client, &o); err != nil {
				return o, err
			}
		}
		if err := f.readMore(client, &o); err != nil {
			return o, err
		}
		if o.ended {
			return o, nil
		}
	}
}

// decide classifies the data. It reports false if it needs more.
func (o *opening) decide() (bool, error) {
	if len(o.data) == 0 {
		return false, nil
	}
	switch o.class = classify(o.data); o.class {
	case unsure:
		return false, nil
	case isTLS:
		var err error
		o.hello, err = readHello(o.data)
		if errors.Is(err, errMore) && len(o.data) <= maxHello {
			return false, nil
		}
		return true, err
	case isHTTP, isHTTP2:
		if o.sent > 0 {
			return true, errPieces
		}
	case opaque:
	}
	return true, nil
}

// release sends the data to the server although it is not classified yet.
func (f *Flow) release(client net.Conn, o *opening) error {
	_ = client.SetReadDeadline(time.Time{})
	err := f.sendFirst(o)
	if n := firstWord(o.data); n == len(o.data) {
		o.data = o.data[:min(n, maxMethod)] // still one word, whatever its length
	}
	o.sent = len(o.data)
	return err
}

// readMore reads once. If the client ends its side, the data counts as opaque; it is an
// error if the data is TLS or may be a request. After a timeout the data is sent on,
// unless it is or may become TLS.
func (f *Flow) readMore(client net.Conn, o *opening) error {
	buffer := make([]byte, firstRead)
	n, err := client.Read(buffer)
	o.data = append(o.data, buffer[:n]...)
	switch {
	case n > 0 || err == nil:
		return nil
	case errors.Is(err, io.EOF):
		if o.class == isTLS {
			return errHello
		}
		if o.ended = true; isRequestLine(o.data) {
			return errNoEnd
		}
		o.class = opaque
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && o.class != isTLS && !isRecord(o.data[0]):
		return f.release(client, o)
	}
	return err
}

// judgeHello asks the rules about the name in a ClientHello, and reports whether the connection is inspected.
func (a *attempt) judgeHello(h hello) (inspected bool, err error) {
	rules := a.judge()
	if h.hidden && !rules.AnyServer(a.dest) {
		v := unjudgeable("the ClientHello may hide the name of another server (ECH): turn that off in the client")
		return false, &denied{verdict: *v, op: plan.OpConnect, server: h.serverName}
	}
	v := rules.Server(a.dest, h.serverName)
	inspected = v.Allowed && a.gate.inspects(&v)
	if v.Allowed && v.HTTP && !inspected {
		v = *unjudgeable("rules here are about single requests, and TLS hides them")
	}
	if !v.Allowed {
		return false, &denied{verdict: v, op: plan.OpConnect, server: h.serverName}
	}
	return inspected, nil
}

// judgeUninspected is judgeHello for a connection whose TLS can no longer end here, or never could (QUIC).
func (a *attempt) judgeUninspected(h hello) error {
	inspected, err := a.judgeHello(h)
	if err == nil && inspected {
		return &denied{verdict: *unjudgeable("TLS with this server is inspected, and cannot be on this connection"), op: plan.OpConnect, server: h.serverName}
	}
	return err
}

// refuseFirst ends a connection whose first bytes are refused.
func (f *Flow) refuseFirst(client net.Conn, o *opening, err error) {
	r, refused := f.refuse(err)
	if !refused {
		f.note(err)
		reset(client)
		return
	}
	reset(f.upstream)
	switch {
	case f.attempt.received.Load() > 0:
		reset(client)
	case o.class == isTLS:
		f.attempt.gate.sendAlert(client)
	case o.class == isHTTP:
		r.send403(client, methodOf(o.data))
	default:
		reset(client)
	}
}

// A class is the protocol that a client's first bytes belong to.
type class int

const (
	unsure  class = iota // more bytes are needed
	opaque               // a protocol that names no server
	isTLS                // a handshake record
	isHTTP               // some server could take it for an HTTP/1 request
	isHTTP2              // the preface of HTTP/2
)

// maxMethod is how much of a long first word is kept. Some servers accept a method of
// any length.
const maxMethod = 128

// isBlank reports whether some server treats the byte as a space: Python's splits a
// line at any of these, and skips them at its start.
func isBlank(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f || c == 0x85 || c == 0xa0
}

// trimBlanks removes the bytes that servers skip before a request.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

// firstWord returns the length of the token at the start of b.
func firstWord(b []byte) int {
	n := 0
	for n < len(b) && isTokenByte(b[n]) {
		n++
	}
	return n
}

// classify recognises the protocol by a client's first bytes. Everything that a lenient
// server might read as HTTP counts as HTTP: it is then parsed strictly.
func classify(b []byte) class {
	if is, more := looksLikeTLS(b); is || more {
		if more {
			return unsure
		}
		return isTLS
	}
	line := trimBlanks(b)
	end := bytes.IndexByte(line, '\n')
	if end < 0 && len(b) <= maxHead {
		return unsure
	}
	switch word := firstWord(line); {
	case end >= 0 && bytes.HasPrefix(line, []byte("PRI * HTTP/2.0\r\n")):
		return isHTTP2
	case end >= 0 && isRequestLine(line[:end+1]):
		return isHTTP
	case end < 0 && (word == len(line) || word > 0 && isBlank(line[word])):
		return isHTTP // will be refused because of its size
	}
	return opaque
}

// isRequestLine reports whether a server might read the line as a request: it contains
// HTTP, or a protocol that Node treats like HTTP, or has the form of HTTP/0.9, after
// which some servers read a header. The method need not be a token: some servers accept
// any word.
func isRequestLine(line []byte) bool {
	line = trimBlanks(line)
	text := strings.ToUpper(string(line))
	word := firstWord(line)
	if word > 0 && word < len(line) && isBlank(line[word]) && strings.Contains(text, "HTTP/") {
		return true
	}
	words := wordsOf(line)
	if len(words) < 2 {
		return false
	}
	for _, w := range words {
		if len(w) >= 5 && strings.EqualFold(string(w[:5]), "HTTP/") {
			return true
		}
	}
	if last := strings.ToUpper(string(words[len(words)-1])); strings.HasPrefix(last, "RTSP/") || strings.HasPrefix(last, "ICE/") {
		return true
	}
	if end := bytes.IndexByte(line, '\r'); end >= 0 {
		words = wordsOf(line[:end]) // some servers end the line here
	}
	if len(words) != 2 {
		return false
	}
	method, target := words[0], words[1]
	return bytes.Contains(target, []byte("://")) ||
		(target[0] == '/' || target[0] == '*') && bytes.Equal(method, bytes.ToUpper(method)) && bytes.ContainsAny(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// wordsOf splits a line as the most lenient server does.
func wordsOf(line []byte) [][]byte {
	plain := bytes.Clone(line)
	for i, c := range plain {
		if isBlank(c) {
			plain[i] = ' '
		}
	}
	return bytes.Fields(plain)
}

// methodOf returns the method of a request line, or "".
func methodOf(line []byte) string {
	method, _, _ := strings.Cut(string(line), " ")
	if !isToken(method) || len(method) > maxMethod {
		return ""
	}
	return method
}

// mayBeMethod reports whether a text may be the start of a request with a usual method,
// so that the gate waits for the rest.
func mayBeMethod(b []byte) bool {
	word, _, _ := bytes.Cut(trimBlanks(b), []byte(" "))
	for _, method := range [...]string{"GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI", "PROPFIND", "REPORT", "MKCOL"} {
		if strings.HasPrefix(method, string(word)) {
			return true
		}
	}
	return false
}
