package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

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

func itoa(n int) string { return strconv.Itoa(n) }

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

// socksGreeting agrees on no authentication: whoever reaches the listener is inside.
func (p *proxied) socksGreeting() bool {
	var start [2]byte
	if _, err := io.ReadFull(p.in.buf, start[:]); err != nil {
		return false
	}
	methods := make([]byte, start[1])
	if _, err := io.ReadFull(p.in.buf, methods); err != nil {
		return false
	}
	for _, m := range methods {
		if m == socksNoAuth {
			_, err := p.client.Write([]byte{socksVersion, socksNoAuth})
			return err == nil
		}
	}
	_, _ = p.client.Write([]byte{socksVersion, socksNoAcceptable})
	return false
}

// socksRequest reads where the client wants to go.
func (p *proxied) socksRequest() (host string, port int, code byte) {
	var start [4]byte
	if _, err := io.ReadFull(p.in.buf, start[:]); err != nil || start[0] != socksVersion {
		return "", 0, socksFailure
	}
	host, code = p.socksHost(start[3])
	if code != socksDone {
		return "", 0, code
	}
	var number [2]byte
	if _, err := io.ReadFull(p.in.buf, number[:]); err != nil {
		return "", 0, socksFailure
	}
	if start[1] != socksConnect {
		return "", 0, socksNoCommand
	}
	port = int(binary.BigEndian.Uint16(number[:]))
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
		n, err := p.in.buf.ReadByte()
		if err != nil || n == 0 {
			return "", socksFailure
		}
		size = int(n)
	default:
		return "", socksNoAddressType
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(p.in.buf, b); err != nil {
		return "", socksFailure
	}
	if kind == socksName {
		return string(b), socksDone
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr.Unmap().String(), socksDone
}

// socksReply answers. The address that it could name is nobody's business.
func (p *proxied) socksReply(code byte) bool {
	_ = p.client.SetWriteDeadline(time.Now().Add(p.gate.limits.first))
	_, err := p.client.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	_ = p.client.SetWriteDeadline(time.Time{})
	if code != socksDone {
		p.gate.closeSoftly(p.client)
	}
	return err == nil
}

// socksCode is what a refusal is called there.
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
