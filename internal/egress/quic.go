package egress

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cloche-dev/cloche/plan"
)

// The versions of QUIC whose first packets can be read (RFC 9001, RFC 9369).
const (
	quicV1 = 0x00000001
	quicV2 = 0x6b3343cf

	frameCrypto = 6
	frameClose  = 0x1c
)

// An initial is an Initial packet of QUIC. Its keys are derived from the connection id
// that the client chose, so everybody who sees the packet can read it.
type initial struct {
	version uint32
	dcid    []byte
	packet  []byte // up to the end of its payload
	number  int    // where its packet number is
}

// nextPacket splits off the first packet of a datagram. It returns nil for a packet that
// is not an Initial. ok is false if nothing more can be read.
func nextPacket(b []byte) (p *initial, rest []byte, ok bool) {
	c := cursor{rest: b}
	first := c.uint8()
	if c.failed || first&0x80 == 0 {
		return nil, nil, false // a short header goes to the end
	}
	// The next bit is always set, but not every server checks it (RFC 9287).
	version := uint32(c.uint16())<<16 | uint32(c.uint16())
	dcid := c.take(int(c.uint8()))
	c.skip(int(c.uint8()))
	isInitial := version == quicV1 && first&0x30 == 0 || version == quicV2 && first&0x30 == 0x10
	if version != quicV1 && version != quicV2 {
		return nil, nil, false
	}
	if isInitial {
		c.skip(c.varint())
	} else if retry := version == quicV1 && first&0x30 == 0x30 || version == quicV2 && first&0x30 == 0; retry {
		return nil, nil, false
	}
	length := c.varint()
	number := len(b) - len(c.rest)
	c.skip(length)
	if c.failed {
		return nil, nil, false
	}
	if !isInitial {
		return nil, c.rest, true
	}
	return &initial{version, dcid, b[:number+length], number}, c.rest, true
}

// oldQUIC reports whether a datagram has a QUIC version from before the first standard,
// or Meta's own. Their packets cannot be read here.
func oldQUIC(b []byte) bool {
	if len(b) < 1200 || b[0]&0x80 == 0 {
		return false
	}
	v := binary.BigEndian.Uint32(b[1:])
	return v>>8 == 0xff0000 || v>>8 == 0xfaceb0 || (v>>24 == 'Q' || v>>24 == 'T') && v>>16&0xff == '0'
}

// varint reads a number of one to eight bytes (RFC 9000, 16). A number larger than any
// packet fails.
func (c *cursor) varint() int {
	first := c.uint8()
	n := uint64(first & 0x3f)
	for range 1<<(first>>6) - 1 {
		n = n<<8 | uint64(c.uint8())
	}
	if n > 1<<20 {
		c.failed, c.rest = true, nil
		return 0
	}
	return int(n)
}

// quicKeys are the keys of a client's Initial packets.
type quicKeys struct {
	aead cipher.AEAD
	iv   []byte
	hp   cipher.Block
}

func newQUICKeys(version uint32, dcid []byte) (*quicKeys, error) {
	salt, label := "\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a", "quic "
	if version == quicV2 {
		salt, label = "\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9", "quicv2 "
	}
	secret := expand(mac([]byte(salt), dcid), "client in", 32)
	block, err := aes.NewCipher(expand(secret, label+"key", 16))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	hp, err := aes.NewCipher(expand(secret, label+"hp", 16))
	return &quicKeys{aead, expand(secret, label+"iv", 12), hp}, err
}

func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}

// expand is HKDF-Expand-Label of TLS 1.3 for at most 32 bytes.
func expand(secret []byte, label string, n int) []byte {
	info := append([]byte{0, byte(n), byte(6 + len(label))}, "tls13 "+label...)
	return mac(secret, append(info, 0, 1))[:n]
}

// open returns the payload of a packet, if these keys decrypt it.
func (k *quicKeys) open(p *initial) ([]byte, bool) {
	if len(p.packet) < p.number+4+aes.BlockSize {
		return nil, false
	}
	var mask [aes.BlockSize]byte
	k.hp.Encrypt(mask[:], p.packet[p.number+4:p.number+4+aes.BlockSize])
	first := p.packet[0] ^ mask[0]&0x0f
	size := int(first&3) + 1
	header := append([]byte(nil), p.packet[:p.number+size]...)
	header[0] = first
	nonce := append([]byte(nil), k.iv...)
	for i := range size {
		header[p.number+i] ^= mask[1+i]
		nonce[len(nonce)-size+i] ^= header[p.number+i]
	}
	payload, err := k.aead.Open(nil, nonce, p.packet[p.number+size:], header)
	return payload, err == nil
}

// cryptoFrames calls take for each piece of the handshake in a payload. It reports false
// if a client may not send the payload.
func cryptoFrames(payload []byte, take func(offset int, data []byte) bool) bool {
	c := cursor{rest: payload}
	for len(c.rest) > 0 && !c.failed {
		switch kind := c.varint(); kind {
		case 0, 1: // padding, ping
		case 2, 3:
			skipACK(&c, kind == 3)
		case frameCrypto:
			offset := c.varint()
			data := c.take(c.varint())
			if c.failed || !take(offset, data) {
				return false
			}
		case frameClose:
			return true
		default:
			return false
		}
	}
	return !c.failed
}

func skipACK(c *cursor, counts bool) {
	c.long() // largest
	c.long() // delay
	ranges := c.varint()
	c.long()
	for range ranges {
		if c.failed {
			return
		}
		c.long()
		c.long()
	}
	if counts {
		c.long()
		c.long()
		c.long()
	}
}

// long skips a number of any size.
func (c *cursor) long() {
	first := c.uint8()
	c.skip(1<<(first>>6) - 1)
}

const (
	// maxQUIC bounds the QUIC connections that one flow of datagrams begins.
	maxQUIC = 64
	// maxHeld bounds the datagrams that wait for the rest of a ClientHello.
	maxHeld = 32
	// maxQUICMemory bounds the memory of the guards of all flows. A datagram can
	// make a guard keep fifty times its size.
	maxQUICMemory = 32 << 20
)

const errQUIC = malformed("a first packet of QUIC cannot be read")

// A quicGuard reads the ClientHellos in a client's datagrams, and holds the datagrams of
// each until it is checked. Without a ClientHello a server makes no connection, so all
// other datagrams pass.
type quicGuard struct {
	judge func(hello) error
	total *atomic.Int64 // bytes that all guards of the gate keep

	mu     sync.Mutex
	kept   int64 // bytes of this one
	closed bool
	conns  []*quicConn
}

// keep adds n bytes to the memory in use; n may be negative. It reports false, and adds
// nothing, if that would exceed the limit.
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

// close releases the memory.
func (g *quicGuard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total.Add(-g.kept)
	g.kept, g.conns, g.closed = 0, nil, true
}

// A quicConn is one connection that a client begins.
type quicConn struct {
	dcid   []byte
	stream []byte // the handshake
	known  []bool // which bytes of stream were received
	judged int    // where the next message begins
	held   [][]byte
}

// pass checks a datagram. It returns the datagrams that may be sent now, in order. The
// datagram itself is among them, or is held, or is dropped because it cannot be read.
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
			return nil, nil // the server cannot read it either
		}
		touched = append(touched, readers...)
	}
	return g.release(touched, datagram)
}

// release holds the datagram if one of its connections is incomplete. Otherwise it returns
// everything that can be sent.
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

// read decrypts a packet with the keys of every connection that it may belong to, and
// adds its content to each that fits. Because the keys are public, a client can make a
// packet that fits several connections.
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

// grows returns by how much a piece extends the stored handshake.
func (c *quicConn) grows(offset int, data []byte) int {
	return max(0, min(offset+len(data), maxHello)-len(c.stream))
}

// take adds a piece of the handshake. It refuses a piece that contradicts an earlier
// one: the server may have received either.
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

// judge checks the complete messages: a ClientHello, and a second one if the server
// asked for it.
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

// errDatagram is the error of a refused datagram.
var errDatagram = syscall.ECONNREFUSED

// refuse records, once, that a datagram was refused, and ends the flow.
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
