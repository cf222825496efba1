package usernet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// hastyVariable makes this program a client of the address that it names.
const hastyVariable = "USERNET_TEST_HASTY"

// L5: a connection whose first packet after the request already has data has all of
// its buffer, also where buffers are small, and is never told that it may send what
// is then dropped.
func TestDataCompletesHandshake(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		s := newSandbox(t, kind, &testGate{})
		defer crowd(s.Stack)()
		for _, v6 := range []bool{false, true} {
			port := listen(t, v6, func(c net.Conn) { _, _ = io.Copy(c, c) })
			client := s.command(t, os.Args[0])
			client.Env = append(os.Environ(), hastyVariable+"="+netip.AddrPortFrom(far(v6), port).String(),
				"GORACE=atexit_sleep_ms=0")
			if out, err := client.CombinedOutput(); err != nil {
				t.Errorf("v6=%v: %v: %s", v6, err, out)
			}
		}
		if n := s.net.Stats().DroppedPackets.Value(); n != 0 {
			t.Errorf("%d segments that the client was allowed to send were dropped", n)
		}
	})
}

// crowd makes the stack believe that it has so many connections that others get the
// smallest buffers, until the function that it returns is called.
func crowd(s *Stack) (leave func()) {
	count := func(n int) {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		s.conns.open += n
	}
	const many = bufferBudget / minBuffer
	count(many)
	return func() { count(-many) }
}

// sendHastily connects, acknowledges that with data, and wants them back.
func sendHastily(address string) int {
	if err := exchangeHastily(address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func exchangeHastily(address string) error {
	const size = 2 << 20
	d := net.Dialer{Timeout: testenv.Patience, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
		})
		return errors.Join(err, failed)
	}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, size))
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(io.Discard, c)
	if n != size {
		err = errors.Join(err, fmt.Errorf("%d of %d bytes came back", n, size))
	}
	return errors.Join(err, <-sent)
}

// L5: data that complete a handshake are charged to the receive buffer once: after
// they were read, there is room for as many again.
func TestHandshakeDataIsChargedOnce(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			port := listen(t, v6, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			inside, file := linkPair(t)
			s := startOn(t, newTestEndpoint(file), &testGate{})
			defer crowd(s)()
			p := &peer{link: inside, to: netip.AddrPortFrom(far(v6), port)}
			p.send(t, header.TCPFlagSyn, nil)
			window := p.receive(t, header.TCPFlagSyn|header.TCPFlagAck)
			p.send(t, header.TCPFlagAck, make([]byte, window))
			// A window counts the memory around the data, too, so that it is never all
			// of the first one while a segment is looked at.
			for room := uint16(0); room < window/2; {
				room = p.receive(t, header.TCPFlagAck)
			}
		})
	}
}

// A peer is a client on a link that sends each segment as the test wants it.
type peer struct {
	link           *os.File
	to             netip.AddrPort
	next, received uint32
	asked          time.Time // when the first segment was waited for
}

const peerPort = 4711

// patience is how long a peer waits in all, and how long before it asks again: more
// than the half second in which a stack answers only one such question.
const (
	patience  = testenv.Patience
	askAgain  = time.Second
	waitsLong = "no segment with %v that acknowledges all, or with room for more, in %v: %v"
)

// ask wants an acknowledgement, like a peer that tries whether the other one is
// alive: with the number of a byte that was acknowledged. The last one may have come
// before the data were read, and what is read after that is not reported as long
// as there is room for more.
func (p *peer) ask(t *testing.T) {
	t.Helper()
	if p.received == 0 {
		return // there is no connection yet
	}
	p.next--
	p.send(t, header.TCPFlagAck, nil)
	p.next++
}

func (p *peer) send(t *testing.T, flags header.TCPFlags, data []byte) {
	t.Helper()
	b := make([]byte, header.TCPMinimumSize, header.TCPMinimumSize+len(data))
	header.TCP(b).Encode(&header.TCPFields{
		SrcPort: peerPort, DstPort: p.to.Port(), SeqNum: p.next, AckNum: p.received,
		DataOffset: header.TCPMinimumSize, Flags: flags, WindowSize: 65535,
	})
	from := inside4
	if p.to.Addr().Is6() {
		from = inside6
	}
	if _, err := p.link.Write(ipPacket(protoTCP, from, p.to.Addr(), append(b, data...))); err != nil {
		t.Fatal(err)
	}
	p.next += uint32(len(data))
	if flags.Contains(header.TCPFlagSyn) {
		p.next++
	}
}

// receive waits for a segment that has the flags and acknowledges all that was sent,
// and returns its window.
func (p *peer) receive(t *testing.T, flags header.TCPFlags) (window uint16) {
	t.Helper()
	start := header.IPv4MinimumSize
	if p.to.Addr().Is6() {
		start = header.IPv6MinimumSize
	}
	if p.asked.IsZero() {
		p.asked = time.Now()
	}
	_ = p.link.SetReadDeadline(time.Now().Add(askAgain))
	for b := make([]byte, maxPacket); ; {
		n, err := p.link.Read(b)
		if err != nil && time.Since(p.asked) > patience {
			t.Fatalf(waitsLong, flags, patience, err)
		}
		if err != nil {
			p.ask(t)
			_ = p.link.SetReadDeadline(time.Now().Add(askAgain))
		}
		if n < start+header.TCPMinimumSize {
			continue
		}
		segment := header.TCP(b[start:n])
		if segment.Flags() == flags && segment.AckNumber() == p.next {
			if flags.Contains(header.TCPFlagSyn) {
				p.received = segment.SequenceNumber() + 1
			}
			return segment.WindowSize()
		}
	}
}
