package egress

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cloche-dev/cloche/plan"
)

const (
	// maxQUIC bounds the QUIC connections that one flow of datagrams begins.
	maxQUIC = 64
	// maxHeld bounds the datagrams that wait for the rest of a ClientHello.
	maxHeld = 32
	// maxQUICMemory bounds what the guards of all flows keep. A datagram can
	// make a guard keep fifty times its size.
	maxQUICMemory = 32 << 20
)

const errQUIC = malformed("a first packet of QUIC cannot be read")

// A quicGuard reads the ClientHellos in a client's datagrams, and holds the
// datagrams of each until it is judged. A server makes no connection without
// one. All other datagrams pass.
type quicGuard struct {
	judge func(hello) error
	total *atomic.Int64 // bytes that all guards of the gate keep

	mu     sync.Mutex
	kept   int64 // bytes of this one
	closed bool
	conns  []*quicConn
}

// keep counts bytes that are kept from now on, or with n < 0 no longer. It reports
// false if they are too many.
func (g *quicGuard) keep(n int) bool {
	if n > 0 && g.closed {
		return false
	}
	if g.total.Add(int64(n)) > maxQUICMemory && n > 0 {
		g.total.Add(-int64(n))
		return false
	}
	g.kept += int64(n)
	return true
}

// close forgets everything.
func (g *quicGuard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total.Add(-g.kept)
	g.kept, g.conns, g.closed = 0, nil, true
}

// A quicConn is one connection that a client begins.
type quicConn struct {
	dcid   []byte
	stream []byte // of the handshake, as far as it is known
	known  []bool // which bytes of it are
	judged int    // where the next message begins
	held   [][]byte
}

// pass judges a datagram. It returns what may be sent now, in order; the datagram is
// among it, or held, or dropped if it cannot be read.
func (g *quicGuard) pass(datagram []byte) ([][]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if oldQUIC(datagram) {
		return nil, malformed("its version of QUIC is too old to be read")
	}
	var touched []*quicConn
	for rest := datagram; ; {
		p, next, ok := nextPacket(rest)
		if !ok {
			break
		}
		rest = next
		if p == nil {
			continue
		}
		readers, err := g.read(p)
		if err != nil {
			return nil, err
		}
		if len(readers) == 0 {
			return nil, nil // nobody can read it: neither can the server
		}
		touched = append(touched, readers...)
	}
	return g.release(touched, datagram)
}

// release decides what becomes of a datagram that is part of connections.
func (g *quicGuard) release(conns []*quicConn, datagram []byte) ([][]byte, error) {
	for _, c := range conns {
		if c.waits() {
			if len(c.held) == maxHeld || !g.keep(len(datagram)) {
				return nil, errQUIC
			}
			c.held = append(c.held, bytes.Clone(datagram))
			return nil, nil
		}
	}
	var out [][]byte
	for _, c := range conns {
		for _, d := range c.held {
			g.keep(-len(d))
		}
		out = append(out, c.held...)
		c.held = nil
	}
	return append(out, datagram), nil
}

// read opens a packet with the keys of every connection that it may belong to, and
// takes in what it says. With keys that are known, a packet can be made that
// several of them open.
func (g *quicGuard) read(p *initial) ([]*quicConn, error) {
	if len(p.dcid) >= 8 && !slices.ContainsFunc(g.conns, func(c *quicConn) bool { return bytes.Equal(c.dcid, p.dcid) }) {
		if len(g.conns) == maxQUIC {
			return nil, errQUIC
		}
		g.conns = append(g.conns, &quicConn{dcid: bytes.Clone(p.dcid)})
	}
	var readers []*quicConn
	for _, c := range g.conns {
		keys, err := newQUICKeys(p.version, c.dcid)
		if err != nil {
			return nil, err
		}
		payload, ok := keys.open(p)
		if !ok {
			continue
		}
		if !cryptoFrames(payload, func(offset int, data []byte) bool { return g.keep(2*c.grows(offset, data)) && c.take(offset, data) }) {
			return nil, errQUIC
		}
		if err := c.judge(g.judge); err != nil {
			return nil, err
		}
		readers = append(readers, c)
	}
	return readers, nil
}

// grows is how much longer a piece makes the handshake, as far as it may be kept.
func (c *quicConn) grows(offset int, data []byte) int {
	return max(0, min(offset+len(data), maxHello)-len(c.stream))
}

// take adds a piece of the handshake. A piece that says something else than one
// before is refused: the server may have lost either.
func (c *quicConn) take(offset int, data []byte) bool {
	end := offset + len(data)
	if end > maxHello {
		return false
	}
	if grow := end - len(c.stream); grow > 0 {
		c.stream, c.known = append(c.stream, make([]byte, grow)...), append(c.known, make([]bool, grow)...)
	}
	for i, b := range data {
		if c.known[offset+i] && c.stream[offset+i] != b {
			return false
		}
		c.stream[offset+i], c.known[offset+i] = b, true
	}
	return true
}

// judge judges the messages that are complete: a ClientHello, and a second one if
// the server asks for it.
func (c *quicConn) judge(judge func(hello) error) error {
	for {
		have := c.judged
		for have < len(c.known) && c.known[have] {
			have++
		}
		message := c.stream[c.judged:have]
		if len(message) < 4 {
			return nil
		}
		size := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		switch {
		case message[0] != helloClient || c.judged+size > maxHello:
			return errQUIC
		case len(message) < size:
			return nil
		}
		h, err := parseHello(message[4:size])
		if err != nil {
			return err
		}
		if err := judge(h); err != nil {
			return err
		}
		c.judged += size
	}
}

// waits reports whether a message has begun and is not complete.
func (c *quicConn) waits() bool { return len(c.stream) > c.judged }

// guardQUIC returns a guard for a flow, or nil if any server may be asked for.
func (a *attempt) guardQUIC() *quicGuard {
	if a.gate.config.Judge().AnyServer(a.dest) {
		return nil
	}
	return &quicGuard{total: &a.gate.quicMemory, judge: func(h hello) error {
		judge := a.gate.config.Judge()
		if h.hidden && !judge.AnyServer(a.dest) {
			return hiddenName(h)
		}
		if v := judge.Server(a.dest, h.serverName); !v.Allowed {
			return &denied{verdict: v, op: plan.OpConnect, server: h.serverName}
		}
		return nil
	}}
}

// errDatagram is what a client's network is told of a refused datagram.
var errDatagram = syscall.ECONNREFUSED

// refuse records, once, that a client said in a datagram what is refused, and ends
// the flow.
func (d *datagrams) refuse(err error) {
	var by *denied
	if !errors.As(err, &by) {
		by = &denied{verdict: *unjudgeable(err.Error()), op: plan.OpConnect}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.refused {
		d.refused = true
		d.attempt.deny(by)
		shut(d.Conn)
	}
}
