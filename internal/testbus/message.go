//go:build unix

package testbus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// The kinds of message.
const (
	methodCall   = 1
	methodReturn = 2
	signal       = 4
)

// A field is one of a message's header: its code, signature and value.
type field struct {
	code      byte
	signature string
	value     any // a string or a uint32
}

// An encoder is bytes in the order of this machine's kind, little-endian.
type encoder []byte

func (e *encoder) align(n int) {
	for len(*e)%n != 0 {
		*e = append(*e, 0)
	}
}

func (e *encoder) number(n uint32) {
	e.align(4)
	*e = binary.LittleEndian.AppendUint32(*e, n)
}

func (e *encoder) text(s string) {
	e.number(uint32(len(s)))
	*e = append(append(*e, s...), 0)
}

func (e *encoder) signature(s string) {
	*e = append(append(append(*e, byte(len(s))), s...), 0)
}

// encode makes a message.
func encode(kind byte, serial uint32, fields []field, body encoder) []byte {
	e := encoder{'l', kind, 0, 1}
	e.number(uint32(len(body)))
	e.number(serial)
	e.number(0) // the length of the fields
	start := len(e)
	for _, f := range fields {
		e.align(8)
		e = append(e, f.code)
		e.signature(f.signature)
		switch v := f.value.(type) {
		case uint32:
			e.number(v)
		case string:
			if f.signature == "g" {
				e.signature(v)
			} else {
				e.text(v)
			}
		}
	}
	binary.LittleEndian.PutUint32(e[start-4:], uint32(len(e)-start))
	e.align(8)
	return append(e, body...)
}

// A message is what a test has to know of one.
type message struct {
	kind            byte
	serial, replyTo uint32
	member, sender  string
	body            []byte
}

var errMessage = errors.New("a message that cannot be read")

// read reads the next message.
func read(in *bufio.Reader) (*message, error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	if head[0] != 'l' {
		return nil, errMessage
	}
	size := binary.LittleEndian.Uint32
	fields := make([]byte, (size(head[12:])+7)/8*8)
	m := &message{kind: head[1], serial: size(head[8:]), body: make([]byte, size(head[4:]))}
	if _, err := io.ReadFull(in, fields); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(in, m.body); err != nil {
		return nil, err
	}
	return m, m.readFields(fields[:size(head[12:])])
}

func (m *message) readFields(b []byte) error {
	for at := 0; at < len(b); at = (at + 7) / 8 * 8 {
		if at+4 > len(b) {
			return errMessage
		}
		code, signature := b[at], b[at+2]
		at += 4
		switch signature {
		case 'u':
			if at+4 > len(b) {
				return errMessage
			}
			if code == 5 {
				m.replyTo = binary.LittleEndian.Uint32(b[at:])
			}
			at += 4
		case 'g':
			at += int(b[at]) + 2
		case 's', 'o':
			if at+4 > len(b) {
				return errMessage
			}
			n := int(binary.LittleEndian.Uint32(b[at:]))
			if at+4+n > len(b) {
				return errMessage
			}
			m.set(code, string(b[at+4:at+4+n]))
			at += n + 5
		default:
			return errMessage
		}
	}
	return nil
}

func (m *message) set(code byte, value string) {
	switch code {
	case 3:
		m.member = value
	case 7:
		m.sender = value
	}
}

// firstText is the text that a body begins with, if it does.
func (m *message) firstText() string {
	if len(m.body) < 4 {
		return ""
	}
	n := int(binary.LittleEndian.Uint32(m.body))
	if 4+n > len(m.body) {
		return ""
	}
	return string(m.body[4 : 4+n])
}
