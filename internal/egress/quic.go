package egress

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// The versions of QUIC whose first packets can be read (RFC 9001, RFC 9369).
const (
	quicV1 = 0x00000001
	quicV2 = 0x6b3343cf

	frameCrypto = 6
	frameClose  = 0x1c
)

// An initial is the first kind of packet of QUIC. Its keys follow from the
// connection id that the client chose, so that whoever sees the packet can
// read it; that keeps out accidents, and nobody else.
type initial struct {
	version uint32
	dcid    []byte
	packet  []byte // up to the end of its payload
	number  int    // where its packet number is
}

// nextPacket takes the first packet off a datagram. It returns nil for one that is no
// Initial: of other kinds only the length matters. ok is false if nothing more
// can be read.
func nextPacket(b []byte) (p *initial, rest []byte, ok bool) {
	c := cursor{rest: b}
	first := c.uint8()
	if c.failed || first&0x80 == 0 {
		return nil, nil, false // a short header goes to the end
	}
	// The next bit is always set, and not every server looks (RFC 9287).
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

// oldQUIC reports whether a datagram is of a version before the first standard
// one, or of Meta's own, whose packets are not read here.
func oldQUIC(b []byte) bool {
	if len(b) < 1200 || b[0]&0x80 == 0 {
		return false
	}
	v := binary.BigEndian.Uint32(b[1:])
	return v>>8 == 0xff0000 || v>>8 == 0xfaceb0 || (v>>24 == 'Q' || v>>24 == 'T') && v>>16&0xff == '0'
}

// varint reads a number of one to eight bytes (RFC 9000, 16). One that no packet
// can hold fails.
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

// open returns the payload of a packet, if these are its keys.
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

// cryptoFrames calls take for each piece of the handshake in a payload. It reports
// false if the payload is not one that a client may send.
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
