// Package sessionbus calls methods of programs on the user's session bus. It speaks to the bus
// itself: the messages are small, and a library or another program for it would cost each start,
// or be missing.
package sessionbus

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
	"path/filepath"
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

// Addresses returns where the session bus may be: what the environment names, or else its usual
// place.
func Addresses() []busaddress.Address {
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		runtime = "/run/user/" + strconv.Itoa(os.Geteuid())
	}
	if list := busaddress.Parse(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), runtime); len(list) > 0 {
		return list
	}
	return []busaddress.Address{{Path: runtime + "/bus"}}
}

// A Conn is a connection to the session bus.
type Conn struct {
	net.Conn
	in     *bufio.Reader
	serial uint32
}

// Dial connects to the first of the addresses that leads to a bus.
func Dial(ctx context.Context, addresses []busaddress.Address) (*Conn, error) {
	err := errors.New("there is no session bus")
	for _, a := range addresses {
		name := a.Path
		if a.Abstract != "" {
			name = "@" + a.Abstract
		}
		if name == "" {
			continue
		}
		var c *Conn
		if c, err = dialOne(ctx, name); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func dialOne(ctx context.Context, name string) (*Conn, error) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	socket, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: socket, in: bufio.NewReader(socket)}
	if err := c.begin(); err != nil {
		socket.Close()
		return nil, fmt.Errorf("the session bus: %w", err)
	}
	return c, nil
}

// begin identifies the user to the bus.
func (c *Conn) begin() error {
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
	_, err = c.Call(Method{To: "org.freedesktop.DBus", Path: "/org/freedesktop/DBus", Interface: "org.freedesktop.DBus", Member: "Hello"}, nil)
	return err
}

// A Method is a method of an object that a program has on the bus.
type Method struct {
	To, Path, Interface, Member string
	// Signature is the types of the arguments.
	Signature string
}

// Call calls a method and returns the body of the answer, which the caller may clear.
func (c *Conn) Call(m Method, body Message) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(callTime)); err != nil {
		return nil, err
	}
	c.serial++
	out := Message{'l', methodCall, 0, 1}
	out.Number(uint32(len(body)))
	out.Number(c.serial)
	out.Number(0) // the length of the fields
	start := len(out)
	out.field(fieldPath, "o", m.Path)
	out.field(fieldInterface, "s", m.Interface)
	out.field(fieldMember, "s", m.Member)
	out.field(fieldDestination, "s", m.To)
	if m.Signature != "" {
		out.field(fieldSignature, "g", m.Signature)
	}
	binary.LittleEndian.PutUint32(out[start-4:], uint32(len(out)-start))
	out.Align(8)
	if _, err := c.Write(append(out, body...)); err != nil {
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
			return nil, fmt.Errorf("%s is refused", m.Member)
		}
	}
}

// read reads a message: its kind, the serial number of the call that it answers, or 0, and
// its body.
func (c *Conn) read() (kind byte, answers uint32, body []byte, err error) {
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

// A Message is bytes in the order of this protocol, little-endian.
type Message []byte

// Align fills up to a multiple of n.
func (m *Message) Align(n int) {
	for len(*m)%n != 0 {
		*m = append(*m, 0)
	}
}

// Number adds a number, or the length of what follows.
func (m *Message) Number(n uint32) {
	m.Align(4)
	*m = binary.LittleEndian.AppendUint32(*m, n)
}

// Text adds a text, or the path of an object.
func (m *Message) Text(s string) {
	m.Number(uint32(len(s)))
	*m = append(append(*m, s...), 0)
}

// Signature adds a signature.
func (m *Message) Signature(s string) {
	*m = append(append(append(*m, byte(len(s))), s...), 0)
}

// field adds a field of the header, whose value is a text.
func (m *Message) field(code byte, signature, value string) {
	m.Align(8)
	*m = append(*m, code)
	m.Signature(signature)
	if signature == "g" {
		m.Signature(value)
	} else {
		m.Text(value)
	}
}

// A Reader reads the body of an answer. After an error, which Err returns, it gives nothing more.
type Reader struct {
	body []byte
	at   int
	bad  bool
}

// NewReader returns a reader of a body.
func NewReader(body []byte) *Reader { return &Reader{body: body} }

// Err reports whether the body was not as the reader expected it.
func (r *Reader) Err() error {
	if r.bad {
		return errors.New("an answer that cannot be read")
	}
	return nil
}

// Align skips to a multiple of n.
func (r *Reader) Align(n int) { r.take((n - r.at%n) % n) }

// Number reads a number, or the length of what follows.
func (r *Reader) Number() int {
	r.Align(4)
	if b := r.take(4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// Text reads a text, or the path of an object.
func (r *Reader) Text() string {
	text := string(r.take(r.Number()))
	r.take(1)
	return text
}

// Bytes reads an array of bytes, without copying it.
func (r *Reader) Bytes() []byte { return r.take(r.Number()) }

// Signature reads a signature.
func (r *Reader) Signature() string {
	text := ""
	if n := r.take(1); n != nil {
		text = string(r.take(int(n[0])))
	}
	r.take(1)
	return text
}

// Texts reads an array of texts.
func (r *Reader) Texts() []string {
	end := r.Number() + r.at
	var list []string
	for !r.bad && r.at < end {
		list = append(list, r.Text())
	}
	r.bad = r.bad || r.at != end
	return list
}

func (r *Reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.body)-r.at {
		r.bad = true
		return nil
	}
	b := r.body[r.at : r.at+n]
	r.at += n
	return b
}
