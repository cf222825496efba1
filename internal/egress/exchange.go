package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// relayHTTP carries plain HTTP/1. It checks each request before it sends it, and reads
// the next one only after the response has ended. So the gate and the server always agree
// on where a request begins.
func (f *Flow) relayHTTP(client net.Conn, ahead []byte) {
	in, out := newStream(client, ahead), newPeer(f)
	defer out.close()
	for {
		out.watch(client)
		q, err := nextRequest(in, 0, f.attempt.gate.limits.first)
		if err == nil {
			err = f.judgeRequest(q)
		}
		if err != nil {
			f.refuseRequest(client, q, err)
			return
		}
		again, err := f.exchange(in, out, q)
		if err != nil {
			f.breakOff(client, out, q, err)
			return
		}
		if !again {
			f.attempt.gate.closeSoftly(client)
			return
		}
	}
}

const errTLS = malformed("rules here are about single requests of plain HTTP, and TLS hides them")

// nextRequest reads the head of a request. It waits up to idle for the first byte (0:
// without a limit), and then up to whole for the rest.
func nextRequest(in *stream, idle, whole time.Duration) (*request, error) {
	if idle > 0 {
		_ = in.conn.SetReadDeadline(time.Now().Add(idle))
	}
	first, err := in.buf.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, io.EOF
	case err != nil:
		return nil, err
	case first[0] == recordHandshake:
		return nil, errTLS
	case !isToken(string(first)):
		return nil, malformed("it does not begin with a method")
	}
	_ = in.conn.SetReadDeadline(time.Now().Add(whole))
	q, err := readRequest(in.buf)
	_ = in.conn.SetReadDeadline(time.Time{})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = malformed("it ends before its header does")
	}
	return q, err
}

func (f *Flow) judgeRequest(q *request) error {
	return f.judgeHTTP(q.method, q.host, q.path, q.fields, true)
}

// judgeHTTP asks the rules about a request of HTTP/1 or HTTP/2. Rules about methods and
// paths apply to HTTP/1 only.
func (f *Flow) judgeHTTP(method, host, path string, fields []field, isHTTP1 bool) error {
	a := f.attempt
	a.Requests++
	v := a.judge().Request(a.dest, method, hostOnly(host), path)
	if v.Allowed && v.HTTP && !isHTTP1 {
		v = *unjudgeable("rules here are about single requests of HTTP/1")
	}
	if v.Allowed && isHTTP1 && method == "CONNECT" {
		// A server that does not know CONNECT may answer it like any request, and
		// read more requests from the tunnel.
		v = *unjudgeable("CONNECT asks the server to be a proxy, and what goes through one cannot be judged")
	}
	if why := checkOverrides(fields, host, v.HTTP); v.Allowed && why != "" {
		v = *unjudgeable(why)
	}
	if v.Allowed {
		return nil
	}
	return &denied{verdict: v, op: plan.OpRequest, server: hostOnly(host), method: method, path: path}
}

// refuseRequest ends a connection whose request is denied, cannot be checked, or was not
// completed by the client.
func (f *Flow) refuseRequest(client net.Conn, q *request, err error) {
	r, refused := f.refuse(err)
	if !refused {
		f.note(err)
		return
	}
	shut(f.upstream)
	if errors.Is(err, errTLS) {
		f.attempt.gate.sendAlert(client)
		return
	}
	method := ""
	if q != nil {
		method = q.method
	}
	r.send403(client, method)
}

// hostOnly is a host without its port.
func hostOnly(s string) string {
	host, _, _ := splitHostPort(s)
	return host
}

// A peer is the server's side of HTTP.
type peer struct {
	*stream
	// ready gets the result of the wait for the first byte of a response.
	ready chan error
	// began says that a part of the response to the last request was sent to the client.
	began bool
}

func newPeer(f *Flow) *peer { return &peer{stream: newStream(f.upstream, nil)} }

// watch waits for the server in parallel to the client: if the server closes an idle
// connection, the wait for the client's next request ends, too.
func (p *peer) watch(client net.Conn) {
	p.began = false
	p.ready = make(chan error, 1)
	go func(ready chan<- error) {
		_, err := p.buf.Peek(1)
		if err != nil && client != nil {
			_ = client.SetReadDeadline(time.Unix(1, 0))
		}
		ready <- err
	}(p.ready)
}

// await returns when a response has begun.
func (p *peer) await() error {
	if p.ready == nil {
		return nil
	}
	err := <-p.ready
	p.ready = nil
	return err
}

// idle reports whether the server's connection is still open and the server has sent
// nothing without a request.
func (p *peer) idle() bool {
	select {
	case err := <-p.ready:
		p.ready <- err
		return false
	default:
		return true
	}
}

// close ends the connection and the goroutine that watches it.
func (p *peer) close() {
	shut(p.conn)
	_ = p.await()
}

// exchange sends one request and carries the response. It reports whether another
// request may follow.
func (f *Flow) exchange(in *stream, out *peer, q *request) (bool, error) {
	if err := f.send(outgoing(q).bytes()); err != nil {
		return false, err
	}
	body := f.sendBody(in, q)
	again, err := f.carryResponse(in, out, q, body)
	if again && err == nil {
		return true, body.wait()
	}
	// The client may still be sending a body that nobody reads.
	shut(out.conn)
	_ = in.conn.SetReadDeadline(time.Unix(1, 0))
	sent := body.wait()
	_ = in.conn.SetReadDeadline(time.Time{})
	if err != nil && isMalformed(sent) {
		err = sent
	}
	return false, err
}

// breakOff ends a connection on which an exchange failed. It sends a refusal if the
// request is the reason and no part of a response was sent.
func (f *Flow) breakOff(client net.Conn, out *peer, q *request, err error) {
	if isMalformed(err) && !out.began {
		f.refuseRequest(client, q, err)
		return
	}
	f.note(err)
	abort(client, err)
}

// A sending is the transfer of a request's body to the server.
type sending struct {
	done chan struct{}
	err  error
}

func (s *sending) wait() error {
	<-s.done
	return s.err
}

// sendBody sends the body of a request in parallel to the response: a server may answer
// before it has read the body.
func (f *Flow) sendBody(in *stream, q *request) *sending {
	s := &sending{done: make(chan struct{})}
	if !q.hasBody() {
		close(s.done)
		return s
	}
	go func() {
		s.err = f.countSent(in.copyBody(f.upstream, q.framing, false))
		f.stopWaiting(s.err)
		close(s.done)
	}()
	return s
}

// stopWaiting ends the wait for a response to a request whose body was not sent
// completely. If the server stopped reading, its answer may still be on the way.
func (f *Flow) stopWaiting(err error) {
	switch {
	case err == nil:
	case isMalformed(err) || errors.Is(err, io.ErrUnexpectedEOF):
		shut(f.upstream)
	default:
		_ = f.upstream.SetReadDeadline(time.Now().Add(f.attempt.gate.limits.first))
	}
}

// outgoing returns the head that is sent to the server. It has exactly the meaning that
// was checked, and no offer to continue in HTTP/2 or TLS, where requests would not be
// checked.
//
// A request with a body is the last one of its connection, and says so. Many servers do
// not read the body of a GET, or of a request that they answer early, and would take it
// for the next request.
func outgoing(q *request) *head {
	h := *q.head
	switch {
	case q.hasBody():
		h.fields = append(q.without("Upgrade", "HTTP2-Settings", "Connection", "Keep-Alive"), field{"Connection", "close"})
	case !q.upgrades() && len(q.get("Upgrade")) > 0:
		h.fields = q.without("Upgrade", "HTTP2-Settings", "Connection")
	}
	return &h
}

const errSwitched = failure("the server switches to a protocol that it was not asked for")

// carryResponse reads responses up to the final one (1xx responses are not final) and
// sends them to the client.
func (f *Flow) carryResponse(in *stream, out *peer, q *request, body *sending) (again bool, err error) {
	for {
		if err := out.await(); err != nil {
			return false, noEOF(err)
		}
		h, err := readResponse(out.buf)
		if err != nil {
			return false, noEOF(err)
		}
		f.attempt.received.Add(int64(h.size))
		status := statusOf(h.line)
		if status == 101 && !q.upgrades() {
			return false, errSwitched
		}
		out.began = true
		if q.hasBody() && status/100 != 1 {
			h.announceClose()
		}
		if _, err := in.conn.Write(h.bytes()); err != nil {
			return false, err
		}
		switch {
		case status == 101:
			return false, f.tunnel(in, out, body)
		case status/100 == 1:
			continue
		}
		return f.carryBody(in, out, q, h, status)
	}
}

func (f *Flow) carryBody(in *stream, out *peer, q *request, h *head, status int) (again bool, err error) {
	frame, err := h.bodyFraming()
	switch {
	case err != nil:
		frame = framing{length: -1} // it ends with the connection
	case q.method == "HEAD" || status == 204 || status == 304:
		frame = framing{}
	}
	if err := f.countReceived(out.copyBody(in.conn, frame, true)); err != nil {
		return false, err
	}
	again = frame.chunked || frame.length >= 0
	return again && q.keepsAlive() && !h.has("Connection", "close") && strings.HasPrefix(h.line, "HTTP/1.1 "), nil
}

// statusOf returns the code of a status line, or 0.
func statusOf(line string) int {
	version, rest, _ := strings.Cut(line, " ")
	if !strings.HasPrefix(version, "HTTP/1.") || len(rest) < 3 {
		return 0
	}
	n, ok := parseLength(rest[:3])
	if !ok {
		return 0
	}
	return int(n)
}

// tunnel carries the protocol to which client and server have upgraded.
func (f *Flow) tunnel(in *stream, out *peer, body *sending) error {
	if err := body.wait(); err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() {
		err := f.countSent(in.copyRest(f.upstream))
		passEnd(f.upstream, err)
		up <- err
	}()
	err := f.countReceived(out.copyRest(in.conn))
	passEnd(in.conn, err)
	if upErr := <-up; err == nil || errors.Is(err, net.ErrClosed) {
		err = upErr
	}
	return err
}
