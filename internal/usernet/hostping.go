//go:build linux

package usernet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// errNoPing says that this user may not send echo requests.
var errNoPing = errors.New("this user may not send echo requests")

const noPingText = "ping: the kernel does not let this user send echo requests, so they are answered as unreachable inside; " +
	"allow it with: sysctl net.ipv4.ping_group_range=\"0 2147483647\""

// A pinger is a socket that sends echo requests of one kind.
type pinger struct {
	file *os.File
	raw  bool // with the IP header in front of what is read (IPv4), and all answers of the host
	v6   bool
	id   uint16 // of a raw one; the kernel chooses the others'
}

// hostEcho sends an echo request from the host and returns the payload of the
// answer.
func hostEcho(ctx context.Context, dst netip.Addr, sequence uint16, payload []byte) ([]byte, error) {
	p, err := openPinger(dst)
	if err != nil {
		return nil, err
	}
	defer p.file.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.file.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.file.SetReadDeadline(time.Now().Add(pingLimit)); err != nil {
		return nil, err
	}
	if _, err := p.file.Write(p.request(sequence, payload)); err != nil {
		return nil, err
	}
	b := make([]byte, maxPacket)
	for {
		n, err := p.file.Read(b)
		if err != nil {
			return nil, err
		}
		if answer, ok := p.answer(b[:n], sequence); ok {
			return bytes.Clone(answer), nil
		}
	}
}

// openPinger opens a ping socket, which needs no privilege but a group in
// net.ipv4.ping_group_range, or else a raw one, which needs CAP_NET_RAW.
func openPinger(dst netip.Addr) (*pinger, error) {
	for _, raw := range []bool{false, true} {
		p, err := newPinger(dst, raw)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return nil, err
		}
	}
	return nil, errNoPing
}

func newPinger(dst netip.Addr, raw bool) (*pinger, error) {
	domain, proto, kind := unix.AF_INET, unix.IPPROTO_ICMP, unix.SOCK_DGRAM
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(dst.AsSlice())}
	if dst.Is6() {
		domain, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
		to = &unix.SockaddrInet6{Addr: dst.As16()}
	}
	if raw {
		kind = unix.SOCK_RAW
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &pinger{file: os.NewFile(uintptr(fd), "ping socket"), raw: raw, v6: dst.Is6(), id: uint16(rand.Uint32())}, nil
}

// request returns the message to send. The kernel adds the checksum, except for
// raw sockets of IPv4.
func (p *pinger) request(sequence uint16, payload []byte) []byte {
	b := make([]byte, echoSize, echoSize+len(payload))
	b[0] = byte(header.ICMPv4Echo)
	if p.v6 {
		b[0] = byte(header.ICMPv6EchoRequest)
	}
	binary.BigEndian.PutUint16(b[4:], p.id)
	binary.BigEndian.PutUint16(b[6:], sequence)
	b = append(b, payload...)
	if p.raw && !p.v6 {
		binary.BigEndian.PutUint16(b[2:], ^checksumOf(b, 0))
	}
	return b
}

// answer returns the payload of a message that answers the request.
func (p *pinger) answer(b []byte, sequence uint16) ([]byte, bool) {
	want := byte(header.ICMPv4EchoReply)
	if p.v6 {
		want = byte(header.ICMPv6EchoReply)
	} else if p.raw {
		if len(b) < header.IPv4MinimumSize {
			return nil, false
		}
		b = b[min(int(header.IPv4(b).HeaderLength()), len(b)):]
	}
	if len(b) < echoSize || b[0] != want || binary.BigEndian.Uint16(b[6:]) != sequence {
		return nil, false
	}
	if p.raw && binary.BigEndian.Uint16(b[4:]) != p.id {
		return nil, false
	}
	return b[echoSize:], true
}
