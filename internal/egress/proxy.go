package egress

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// ServeProxy serves HTTP (CONNECT, and requests with a URL) and SOCKS5 on one listener,
// until the listener or the gate is closed. It closes the listener.
func (g *Gate) ServeProxy(l net.Listener) { g.accept(l, g.proxyConns, g.serveProxyConn) }

// serveProxyConn recognises the protocol by the first byte: SOCKS5 begins with its
// version, which is not a letter.
func (g *Gate) serveProxyConn(conn net.Conn) {
	p := &proxied{gate: g, client: conn, in: newStream(conn, nil)}
	p.from, p.to = AddrPortOf(conn.RemoteAddr()), AddrPortOf(conn.LocalAddr())
	_ = conn.SetReadDeadline(time.Now().Add(g.limits.idle))
	first, err := p.in.buf.Peek(1)
	switch {
	case err != nil:
	case first[0] == socksVersion:
		p.serveSOCKS()
	default:
		p.serveHTTP()
	}
}

// A proxied is one connection of a client to the proxy.
type proxied struct {
	gate     *Gate
	client   net.Conn
	from, to netip.AddrPort
	in       *stream
	// flow and out are the connection that plain requests use, or nil. It is kept for the
	// next request to the same server.
	flow   *Flow
	out    *peer
	server string
	kept   bool // the connection was used before
}

// open checks and makes a connection to the server that the client names.
func (p *proxied) open(host string, port int) (*Flow, *Refusal) {
	flow, refusal := p.gate.OpenName(p.gate.ctx, p.from, p.to, host, port)
	if refusal != nil && refusal.asks != nil {
		return refusal.decided(p.client, p.in.buf)
	}
	return flow, refusal
}

// ahead returns what was read ahead from the client.
func (p *proxied) ahead() []byte { return takeBuffered(p.in.buf) }

func takeBuffered(in *bufio.Reader) []byte {
	part, _ := in.Peek(in.Buffered())
	ahead := append([]byte(nil), part...)
	_, _ = in.Discard(len(ahead))
	return ahead
}

// serveHTTP answers requests until one is a CONNECT or the client ends.
func (p *proxied) serveHTTP() {
	defer p.drop()
	l := &p.gate.limits
	for {
		q, err := nextRequest(p.in, l.idle, l.first)
		switch {
		case isMalformed(err):
			p.fail("400 Bad Request", nil, err.Error())
			return
		case err != nil:
			return
		case q.method == "CONNECT":
			p.connect(q)
			return
		}
		if !p.forward(q) {
			return
		}
	}
}

// connect serves CONNECT. The data that follows is checked as on a direct connection.
func (p *proxied) connect(q *request) {
	if q.hasBody() {
		p.fail("400 Bad Request", q, "CONNECT has no body")
		return
	}
	host, port, _ := splitHostPort(q.host)
	flow, refusal := p.open(host, port)
	if refusal != nil {
		p.refuse(refusal, q)
		return
	}
	defer flow.finish()
	if _, err := p.client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	flow.relay(p.client, p.ahead())
}

// forward sends a plain request to its server. It reports whether the client may send
// another one.
func (p *proxied) forward(q *request) bool {
	if q.scheme != "http" {
		p.fail("400 Bad Request", q, "this is a proxy: the target has to be a URL that begins with http://, or the method CONNECT")
		return false
	}
	if q.has("Upgrade", "h2c") || q.has("Upgrade", "websocket") {
		// Both continue in another protocol, and need a connection of their own.
		p.drop()
	}
	if !p.reach(q) {
		return false
	}
	if err := p.flow.judgeRequest(q); err != nil {
		p.flow.refuseRequest(p.client, q, err)
		return false
	}
	again, err := p.flow.exchange(p.in, p.out, p.origin(q))
	switch {
	case err == nil && again:
		p.out.watch(nil)
		return true
	case err == nil:
		p.drop()
		p.gate.closeSoftly(p.client)
	case p.out.began || isMalformed(err):
		p.flow.breakOff(p.client, p.out, q, err)
	case p.kept && !q.hasBody():
		// The server closed the kept connection, as it may.
		p.drop()
		return p.forward(q)
	default:
		p.flow.note(err)
		p.fail("502 Bad Gateway", q, cause(err))
	}
	return false
}

// reach makes the connection for a request, unless the kept one leads to the same
// server and is still open.
func (p *proxied) reach(q *request) bool {
	host, port, _ := splitHostPort(q.host)
	if port == 0 {
		port = 80
	}
	server := net.JoinHostPort(host, strconv.Itoa(port))
	p.kept = p.flow != nil && p.server == server && p.out.idle()
	if p.kept {
		return true
	}
	p.drop()
	flow, refusal := p.open(host, port)
	if refusal != nil {
		p.refuse(refusal, q)
		return false
	}
	p.flow, p.out, p.server = flow, newPeer(flow), server
	p.out.watch(nil)
	return true
}

// drop ends the connection to the server, if there is one.
func (p *proxied) drop() {
	if p.flow != nil {
		p.out.close()
		p.flow.finish()
		p.flow, p.out = nil, nil
	}
}

// origin returns the request in the form for a server: with a path, and without the
// fields for the proxy.
func (p *proxied) origin(q *request) *request {
	h := *q.head
	h.line = q.method + " " + q.path + " HTTP/1." + strconv.Itoa(q.minor)
	h.fields = append([]field{{"Host", q.host}}, q.without("Host", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate")...)
	changed := *q
	changed.head = &h
	return &changed
}

// refuse answers a request that is refused, or whose connection failed.
func (p *proxied) refuse(r *Refusal, q *request) {
	if r.err == nil {
		r.send403(p.client, q.method)
		return
	}
	status := "502 Bad Gateway"
	if errors.Is(r.err, syscall.ETIMEDOUT) || errors.Is(r.err, os.ErrDeadlineExceeded) {
		status = "504 Gateway Timeout"
	}
	p.fail(status, q, cause(r.err))
}

// fail answers with an error that is not a denial, and ends the connection.
func (p *proxied) fail(status string, q *request, reason string) {
	text, withBody := failureText{Error: "the proxy of cloche could not do this", Reason: reason}, true
	if q != nil {
		text.Host, text.Port, _ = splitHostPort(q.host)
		withBody = q.method != "HEAD"
	}
	_ = p.client.SetWriteDeadline(time.Now().Add(p.gate.limits.first))
	_, _ = p.client.Write(response(status, encode(text), withBody))
	p.gate.closeSoftly(p.client)
}

// The protocol of RFC 1928.
const (
	socksVersion = 5
	socksConnect = 1

	socksNoAuth       = 0
	socksNoAcceptable = 0xff

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksDone           = 0
	socksFailure        = 1
	socksNotAllowed     = 2
	socksNetUnreachable = 3
	socksUnreachable    = 4
	socksRefused        = 5
	socksTimeout        = 6
	socksNoCommand      = 7
	socksNoAddressType  = 8
)

// serveSOCKS serves one connection of SOCKS5.
func (p *proxied) serveSOCKS() {
	_ = p.client.SetDeadline(time.Now().Add(p.gate.limits.first))
	if !p.socksGreeting() {
		return
	}
	host, port, code := p.socksRequest()
	if code != socksDone {
		p.socksReply(code)
		return
	}
	_ = p.client.SetDeadline(time.Time{})
	flow, refusal := p.open(host, port)
	if refusal != nil {
		p.socksReply(socksCode(refusal))
		return
	}
	defer flow.finish()
	if p.socksReply(socksDone) {
		flow.relay(p.client, p.ahead())
	}
}

// socksRead reads n bytes. It returns nil if the client ends before that.
func (p *proxied) socksRead(n int) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(p.in.buf, b); err != nil {
		return nil
	}
	return b
}

// socksGreeting accepts clients without authentication: only programs inside reach the
// listener.
func (p *proxied) socksGreeting() bool {
	start := p.socksRead(2)
	if start == nil {
		return false
	}
	methods := p.socksRead(int(start[1]))
	if methods == nil {
		return false
	}
	answer := byte(socksNoAcceptable)
	if slices.Contains(methods, socksNoAuth) {
		answer = socksNoAuth
	}
	_, err := p.client.Write([]byte{socksVersion, answer})
	return err == nil && answer == socksNoAuth
}

// socksRequest reads the destination.
func (p *proxied) socksRequest() (host string, port int, code byte) {
	start := p.socksRead(4)
	if start == nil || start[0] != socksVersion {
		return "", 0, socksFailure
	}
	host, code = p.socksHost(start[3])
	if code != socksDone {
		return "", 0, code
	}
	number := p.socksRead(2)
	switch {
	case number == nil:
		return "", 0, socksFailure
	case start[1] != socksConnect:
		return "", 0, socksNoCommand
	}
	port = int(binary.BigEndian.Uint16(number))
	if port == 0 {
		return "", 0, socksFailure
	}
	return host, port, socksDone
}

func (p *proxied) socksHost(kind byte) (string, byte) {
	size := 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n := p.socksRead(1)
		if n == nil || n[0] == 0 {
			return "", socksFailure
		}
		size = int(n[0])
	default:
		return "", socksNoAddressType
	}
	b := p.socksRead(size)
	switch {
	case b == nil:
		return "", socksFailure
	case kind == socksName:
		return string(b), socksDone
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr.Unmap().String(), socksDone
}

// socksReply answers the client. The address of the connection in it is zero.
func (p *proxied) socksReply(code byte) bool {
	_ = p.client.SetWriteDeadline(time.Now().Add(p.gate.limits.first))
	_, err := p.client.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	_ = p.client.SetWriteDeadline(time.Time{})
	if code != socksDone {
		p.gate.closeSoftly(p.client)
	}
	return err == nil
}

// socksCode returns the code of SOCKS for a refusal.
func socksCode(r *Refusal) byte {
	switch {
	case r.err == nil:
		return socksNotAllowed
	case errors.Is(r.err, syscall.ECONNREFUSED):
		return socksRefused
	case errors.Is(r.err, syscall.ENETUNREACH):
		return socksNetUnreachable
	case errors.Is(r.err, syscall.EHOSTUNREACH), notFound(r.err):
		return socksUnreachable
	case errors.Is(r.err, syscall.ETIMEDOUT):
		return socksTimeout
	}
	return socksFailure
}
