package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const backlog = 1024

// sockaddr converts an address for a system call.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if addr := a.Addr(); addr.Is6() && !addr.Is4In6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: addr.As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().Unmap().As4()}
}

// socket makes a non-blocking socket inside, of the same family as the address.
func (n *Namespace) socket(a netip.AddrPort, kind int) (int, error) {
	if !a.Addr().IsValid() {
		return -1, errors.New("no address is given")
	}
	return n.openOne(inetRequest(int(family(a.Addr().Unmap())), kind))
}

// fail returns an error that says what failed for which address.
func fail(what string, a fmt.Stringer, err error) error {
	return fmt.Errorf("cannot %s %s in the sandbox: %w", what, a, err)
}

// bind binds a socket to an address. A stream socket may take an address that was in use a
// moment ago, and listens. Datagram sockets do not get that option: two of them could share
// an address, and the second would receive everything. bind returns the socket as a file;
// package net makes its own copy of the descriptor. An IPv6 socket receives no IPv4 traffic.
func bind(fd, kind int, at unix.Sockaddr) (*os.File, error) {
	if kind == unix.SOCK_STREAM {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if _, six := at.(*unix.SockaddrInet6); six {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	err := os.NewSyscallError("bind", unix.Bind(fd, at))
	if err == nil && kind == unix.SOCK_STREAM {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket of the sandbox"), nil
}

// bound makes a socket inside and binds it.
func (n *Namespace) bound(a netip.AddrPort, kind int) (*os.File, error) {
	fd, err := n.socket(a, kind)
	if err != nil {
		return nil, err
	}
	return bind(fd, kind, sockaddr(a))
}

// ListenTCP listens on an address inside.
func (n *Namespace) ListenTCP(a netip.AddrPort) (*net.TCPListener, error) {
	f, err := n.bound(a, unix.SOCK_STREAM)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	return l.(*net.TCPListener), nil
}

// ListenUDP receives datagrams that are sent to an address inside.
func (n *Namespace) ListenUDP(a netip.AddrPort) (*net.UDPConn, error) {
	f, err := n.bound(a, unix.SOCK_DGRAM)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	return c.(*net.UDPConn), nil
}

// ListenUnix listens at an abstract name inside.
func (n *Namespace) ListenUnix(abstract string) (*net.UnixListener, error) {
	fd, err := n.openOne(inetRequest(unix.AF_UNIX, unix.SOCK_STREAM))
	var f *os.File
	if err == nil {
		f, err = bind(fd, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + abstract})
	}
	var l net.Listener
	if err == nil {
		defer f.Close()
		l, err = net.FileListener(f)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen at the abstract socket %q in the sandbox: %w", abstract, err)
	}
	return l.(*net.UnixListener), nil
}

// DialTCP connects to an address inside.
func (n *Namespace) DialTCP(ctx context.Context, a netip.AddrPort) (*net.TCPConn, error) {
	c, err := n.dial(ctx, a, unix.SOCK_STREAM)
	if err != nil {
		return nil, fail("connect to TCP", a, err)
	}
	return c.(*net.TCPConn), nil
}

// DialUDP makes a socket inside that sends to the address.
func (n *Namespace) DialUDP(ctx context.Context, a netip.AddrPort) (*net.UDPConn, error) {
	c, err := n.dial(ctx, a, unix.SOCK_DGRAM)
	if err != nil {
		return nil, fail("connect to UDP", a, err)
	}
	return c.(*net.UDPConn), nil
}

func (n *Namespace) dial(ctx context.Context, a netip.AddrPort, kind int) (net.Conn, error) {
	fd, err := n.socket(a, kind)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket of the sandbox")
	defer f.Close()
	err = unix.Connect(fd, sockaddr(a))
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = awaitConnected(ctx, f)
	}
	if err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(f)
}

// awaitConnected waits until a connection is made, or refused, or ctx ends.
func awaitConnected(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		code, optErr := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case optErr != nil:
			result = optErr
		case code != 0:
			result = unix.Errno(code)
		default:
			_, peerErr := unix.Getpeername(int(fd))
			return peerErr == nil // otherwise it is still connecting
		}
		return true
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, result)
}
