package desktop

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/busaddress"
)

// callTime is how long connecting to the bus and one call on it may take.
const callTime = 5 * time.Second

// maxMessage bounds a message of the bus. Those that are meant for us are small.
const maxMessage = 64 << 10

// The kinds of messages, and the codes of their fields.
const (
	methodCall   = 1
	methodReturn = 2
	errorReturn  = 3

	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldReplySerial = 5
	fieldDestination = 6
	fieldSignature   = 8
)

// A conn is a connection to the session bus.
type conn struct {
	net.Conn
	in     *bufio.Reader
	serial uint32
}

// dial connects to the first of the addresses that leads to a bus.
func dial(ctx context.Context, addresses []busaddress.Address) (*conn, error) {
	err := errors.New("there is no session bus")
	for _, a := range addresses {
		name := a.Path
		if a.Abstract != "" {
			name = "@" + a.Abstract
		}
		if name == "" {
			continue
		}
		var c *conn
		if c, err = dialOne(ctx, name); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func dialOne(ctx context.Context, name string) (*conn, error) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	socket, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: socket, in: bufio.NewReader(socket)}
	if err := c.begin(); err != nil {
		socket.Close()
		return nil, fmt.Errorf("the session bus: %w", err)
	}
	return c, nil
}

// begin identifies the user to the bus.
func (c *conn) begin() error {
	if err := c.SetDeadline(time.Now().Add(callTime)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "\x00AUTH EXTERNAL %s\r\n", hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))); err != nil {
		return err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return errors.New("it does not accept this user")
	}
	if _, err := c.Write([]byte("BEGIN\r\n")); err != nil {
		return err
	}
	_, err = c.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "Hello", "", nil)
	return err
}

// call calls a method of the interface that has the name of the destination, and returns the
// body of the answer.
func (c *conn) call(to, path, member, signature string, body message) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(callTime)); err != nil {
		return nil, err
	}
	c.serial++
	m := message{'l', methodCall, 0, 1}
	m.number(uint32(len(body)))
	m.number(c.serial)
	m.number(0) // the length of the fields
	start := len(m)
	m.field(fieldPath, "o", path)
	m.field(fieldInterface, "s", to)
	m.field(fieldMember, "s", member)
	m.field(fieldDestination, "s", to)
	if signature != "" {
		m.field(fieldSignature, "g", signature)
	}
	binary.LittleEndian.PutUint32(m[start-4:], uint32(len(m)-start))
	m.align(8)
	if _, err := c.Write(append(m, body...)); err != nil {
		return nil, err
	}
	for {
		kind, answers, body, err := c.read()
		switch {
		case err != nil:
			return nil, err
		case answers != c.serial:
		case kind == methodReturn:
			return body, nil
		case kind == errorReturn:
			return nil, fmt.Errorf("%s is refused", member)
		}
	}
}

// read reads a message: its kind, the serial number of the call that it answers, or 0, and
// its body.
func (c *conn) read() (kind byte, answers uint32, body []byte, err error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(c.in, head); err != nil {
		return 0, 0, nil, err
	}
	number := binary.LittleEndian.Uint32
	size, fields := number(head[4:]), number(head[12:])
	if head[0] != 'l' || size > maxMessage || fields > maxMessage {
		return 0, 0, nil, errors.New("a message that cannot be read")
	}
	rest := make([]byte, (fields+7)/8*8+size)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return 0, 0, nil, err
	}
	return head[1], answered(rest[:fields]), rest[(fields+7)/8*8:], nil
}

// answered returns the serial number of the call that a message answers, out of its fields.
// Each field is a code, its signature of one letter, and a value.
func answered(fields []byte) uint32 {
	for at := 0; at+8 <= len(fields); at = (at + 7) / 8 * 8 {
		code, kind := fields[at], fields[at+2]
		at += 4
		n := binary.LittleEndian.Uint32(fields[at:])
		switch {
		case code == fieldReplySerial && kind == 'u':
			return n
		case kind == 'u':
			at += 4
		case kind == 'g':
			at += int(fields[at]) + 2
		case n > maxMessage:
			return 0
		default: // a string
			at += int(n) + 5
		}
	}
	return 0
}

// A message is bytes in the order of this protocol, little-endian.
type message []byte

func (m *message) align(n int) {
	for len(*m)%n != 0 {
		*m = append(*m, 0)
	}
}

func (m *message) number(n uint32) {
	m.align(4)
	*m = binary.LittleEndian.AppendUint32(*m, n)
}

func (m *message) text(s string) {
	m.number(uint32(len(s)))
	*m = append(append(*m, s...), 0)
}

func (m *message) signature(s string) {
	*m = append(append(append(*m, byte(len(s))), s...), 0)
}

// field adds a field of the header, whose value is a text.
func (m *message) field(code byte, signature, value string) {
	m.align(8)
	*m = append(*m, code)
	m.signature(signature)
	if signature == "g" {
		m.signature(value)
	} else {
		m.text(value)
	}
}
