package egress

import "sync"

const (
	// maxTable bounds the dynamic table. Servers allow 4096 bytes unless they say
	// otherwise; a client that uses more than its server allows fails there.
	maxTable = 64 << 10
	// maxString bounds one name or value.
	maxString = 64 << 10
)

const errHPACK = malformed("its header cannot be decoded")

// An hpack decodes the headers of one HTTP/2 connection (RFC 7541). What a block means
// depends on all blocks before it.
type hpack struct {
	entries []field // the newest last
	size    int
	limit   int
}

func newHPACK() *hpack { return &hpack{limit: 4096} }

// decode reads a block and calls emit for each field of it.
func (d *hpack) decode(block []byte, emit func(field)) error {
	c := cursor{rest: block}
	for len(c.rest) > 0 && !c.failed {
		if err := d.decodeOne(&c, emit); err != nil {
			return err
		}
	}
	if c.failed {
		return errHPACK
	}
	return nil
}

func (d *hpack) decodeOne(c *cursor, emit func(field)) error {
	switch b := c.rest[0]; {
	case b&0x80 != 0: // indexed
		f, ok := d.at(hpackInt(c, 7))
		if !ok {
			return errHPACK
		}
		emit(f)
	case b&0xc0 == 0x40: // literal, to be remembered
		f, ok := d.literal(c, 6)
		if !ok {
			return errHPACK
		}
		d.add(f)
		emit(f)
	case b&0xe0 == 0x20: // size of the table
		limit := hpackInt(c, 5)
		if limit > maxTable {
			return errHPACK
		}
		d.limit = limit
		d.evict()
	default: // literal
		f, ok := d.literal(c, 4)
		if !ok {
			return errHPACK
		}
		emit(f)
	}
	return nil
}

// literal reads a field whose name may be indexed.
func (d *hpack) literal(c *cursor, bits int) (field, bool) {
	var f field
	if index := hpackInt(c, bits); index > 0 {
		known, ok := d.at(index)
		if !ok {
			return f, false
		}
		f.name = known.name
	} else if f.name = hpackString(c); c.failed {
		return f, false
	}
	f.value = hpackString(c)
	return f, !c.failed
}

// at returns the field with an index, the static ones first.
func (d *hpack) at(index int) (field, bool) {
	switch {
	case index < 1 || index > len(hpackStatic)+len(d.entries):
		return field{}, false
	case index <= len(hpackStatic):
		return hpackStatic[index-1], true
	}
	return d.entries[len(d.entries)-(index-len(hpackStatic))], true
}

func entrySize(f field) int { return len(f.name) + len(f.value) + 32 }

func (d *hpack) add(f field) {
	d.entries = append(d.entries, f)
	d.size += entrySize(f)
	d.evict()
}

// evict drops the oldest until the rest fits.
func (d *hpack) evict() {
	n := 0
	for d.size > d.limit {
		d.size -= entrySize(d.entries[n])
		n++
	}
	if n > 0 {
		d.entries = append(d.entries[:0:0], d.entries[n:]...)
	}
}

// hpackInt reads a number whose first byte has that many bits of it. A number
// that is too large for anything fails.
func hpackInt(c *cursor, bits int) int {
	most := 1<<bits - 1
	n := int(c.uint8()) & most
	if n < most {
		return n
	}
	for shift := 0; shift <= 21; shift += 7 {
		b := c.uint8()
		n += int(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
	c.failed = true
	return 0
}

func hpackString(c *cursor) string {
	if len(c.rest) == 0 {
		c.failed = true
		return ""
	}
	coded := c.rest[0]&0x80 != 0
	size := hpackInt(c, 7)
	if size > maxString {
		c.failed = true
		return ""
	}
	b := c.take(size)
	if c.failed || !coded {
		return string(b)
	}
	text, ok := huffman(b)
	c.failed = !ok
	return text
}

// huffmanCode is the canonical code in a form to decode by, made when it is first used.
var huffmanCode struct {
	once    sync.Once
	symbols [257]uint16 // ordered by code
	first   [31]uint32  // the first code of each length
	count   [31]uint32  // how many there are of it
	start   [31]uint32  // where they start in symbols
}

func makeHuffman() {
	h := &huffmanCode
	for _, n := range huffmanLengths {
		h.count[n]++
	}
	var code, at uint32
	for n := 1; n < len(h.count); n++ {
		code = (code + h.count[n-1]) << 1
		h.first[n], h.start[n] = code, at
		for symbol, length := range huffmanLengths {
			if int(length) == n {
				h.symbols[at] = uint16(symbol)
				at++
			}
		}
	}
}

// huffman decodes a text. What is left at its end has to be the beginning of the
// code of the end, of less than a byte.
func huffman(b []byte) (string, bool) {
	h := &huffmanCode
	h.once.Do(makeHuffman)
	text := make([]byte, 0, 2*len(b))
	var code uint32
	length := 0
	for _, c := range b {
		for bit := 7; bit >= 0; bit-- {
			code = code<<1 | uint32(c>>bit&1)
			length++
			if length >= len(h.count) {
				return "", false
			}
			if code-h.first[length] >= h.count[length] || code < h.first[length] {
				continue
			}
			symbol := h.symbols[h.start[length]+code-h.first[length]]
			if symbol == 256 {
				return "", false
			}
			text = append(text, byte(symbol))
			code, length = 0, 0
		}
	}
	return string(text), length < 8 && code == 1<<length-1
}
