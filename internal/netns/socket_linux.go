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

// socket makes a non-blocking socket inside, of the family of an address.
func (n *Namespace) socket(a netip.AddrPort, kind int) (int, error) {
	if !a.Addr().IsValid() {
		return -1, errors.New("no address is given")
	}
	return n.openOne(inetRequest(int(family(a.Addr().Unmap())), kind))
}

// fail names what could not be done.
func fail(what string, a fmt.Stringer, err error) error {
	return fmt.Errorf("cannot %s %s in the sandbox: %w", what, a, err)
}

// bound makes a socket inside with an address, which may have been in use a moment ago.
// A socket of IPv6 receives nothing of IPv4.
func (n *Namespace) bound(a netip.AddrPort, kind int) (int, error) {
	fd, err := n.socket(a, kind)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if a.Addr().Is6() && !a.Addr().Is4In6() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

// socketFile is a socket as a file. Package net copies its descriptor.
func socketFile(fd int) *os.File { return os.NewFile(uintptr(fd), "socket of the sandbox") }

// listen makes a listener of a bound socket, and closes the descriptor.
func listen(fd int) (net.Listener, error) {
	f := socketFile(fd)
	defer f.Close()
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}

// ListenTCP listens inside.
func (n *Namespace) ListenTCP(a netip.AddrPort) (*net.TCPListener, error) {
	fd, err := n.bound(a, unix.SOCK_STREAM)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	l, err := listen(fd)
	if err != nil {
		return nil, fail("listen at TCP", a, err)
	}
	return l.(*net.TCPListener), nil
}

// ListenUDP receives inside what is sent to the address.
func (n *Namespace) ListenUDP(a netip.AddrPort) (*net.UDPConn, error) {
	fd, err := n.bound(a, unix.SOCK_DGRAM)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	f := socketFile(fd)
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, fail("receive at UDP", a, err)
	}
	return c.(*net.UDPConn), nil
}

// ListenUnix listens at an abstract name inside.
func (n *Namespace) ListenUnix(abstract string) (*net.UnixListener, error) {
	l, err := n.listenUnix(abstract)
	if err != nil {
		return nil, fmt.Errorf("cannot listen at the abstract socket %q in the sandbox: %w", abstract, err)
	}
	return l.(*net.UnixListener), nil
}

func (n *Namespace) listenUnix(abstract string) (net.Listener, error) {
	fd, err := n.openOne(inetRequest(unix.AF_UNIX, unix.SOCK_STREAM))
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + abstract}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return listen(fd)
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
	f := socketFile(fd)
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
			return peerErr == nil // or it is still under way
		}
		return true
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, result)
}
