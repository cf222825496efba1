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

// sockaddr is the kernel's form of an address.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if addr := a.Addr(); addr.Is6() && !addr.Is4In6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: addr.As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().Unmap().As4()}
}

// make makes one descriptor inside.
func (n *Namespace) make(r request) (int, error) {
	fds, err := n.open(r)
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// inet makes a socket of an address's family that does not block.
func (n *Namespace) inet(a netip.AddrPort, kind int) (int, error) {
	if !a.Addr().IsValid() {
		return -1, errors.New("no address is given")
	}
	return n.make(inetRequest(int(family(a.Addr().Unmap())), kind))
}

// fail names what could not be done.
func fail(what string, a fmt.Stringer, err error) error {
	return fmt.Errorf("cannot %s %s in the sandbox: %w", what, a, err)
}

// ListenTCP listens inside. A socket of IPv6 takes no connection of IPv4.
func (n *Namespace) ListenTCP(a netip.AddrPort) (*net.TCPListener, error) {
	fd, err := n.inet(a, unix.SOCK_STREAM)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	if err := errors.Join(bind(fd, a), os.NewSyscallError("listen", unix.Listen(fd, backlog))); err != nil {
		unix.Close(fd)
		return nil, fail("listen at TCP", a, err)
	}
	l, err := copied(fd, net.FileListener)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	return l.(*net.TCPListener), nil
}

// bind gives the socket an address that may have been in use a moment ago.
func bind(fd int, a netip.AddrPort) error {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if a.Addr().Is6() && !a.Addr().Is4In6() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(a)))
}

// ListenUDP receives inside what is sent to the address.
func (n *Namespace) ListenUDP(a netip.AddrPort) (*net.UDPConn, error) {
	fd, err := n.inet(a, unix.SOCK_DGRAM)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	if err := bind(fd, a); err != nil {
		unix.Close(fd)
		return nil, fail("receive at UDP", a, err)
	}
	c, err := copied(fd, net.FilePacketConn)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	return c.(*net.UDPConn), nil
}

// ListenUnix listens at an abstract name inside.
func (n *Namespace) ListenUnix(abstract string) (*net.UnixListener, error) {
	fd, err := n.make(inetRequest(unix.AF_UNIX, unix.SOCK_STREAM))
	if err != nil {
		return nil, fmt.Errorf("cannot listen at the abstract socket %q in the sandbox: %w", abstract, err)
	}
	bound := os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + abstract}))
	if err := errors.Join(bound, os.NewSyscallError("listen", unix.Listen(fd, backlog))); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot listen at the abstract socket %q in the sandbox: %w", abstract, err)
	}
	l, err := copied(fd, net.FileListener)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

func owned(fd int) *os.File { return os.NewFile(uintptr(fd), "socket of the sandbox") }

// copied turns a descriptor into what package net makes of it, which is a copy.
func copied[T any](fd int, from func(*os.File) (T, error)) (T, error) {
	f := owned(fd)
	defer f.Close()
	return from(f)
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
	fd, err := n.inet(a, kind)
	if err != nil {
		return nil, err
	}
	f := owned(fd)
	defer f.Close()
	err = unix.Connect(fd, sockaddr(a))
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = connected(ctx, f)
	}
	if err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(f)
}

// connected waits until a connection is made, or refused, or ctx ends.
func connected(ctx context.Context, f *os.File) error {
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
			return peerErr == nil // or it is still under way
		}
		return true
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, result)
}
