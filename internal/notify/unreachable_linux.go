//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

// recordUnreachable records that a connection failed because the network is the
// sandbox's own: there is no way to the address, or it is one of the loopback, where
// nobody listens inside and somebody does outside. In the mode user the gate records
// what it refuses.
func (c *call) recordUnreachable(socket int, raw []byte, err error) {
	if err == nil || c.b.inHostNetwork() {
		return
	}
	if name, ok := abstractOf(raw); ok && errors.Is(err, unix.ECONNREFUSED) && c.b.hasAbstract(name) {
		c.recordSocket("@"+name, "@"+name)
		return
	}
	to, ok := inetAddress(raw)
	if !ok {
		return
	}
	network := &c.b.config.Plan.Network
	var refused bool
	if to.Addr().IsLoopback() || to.Addr().IsUnspecified() {
		refused = refusedHere(socket, err) && c.b.listensOutside(to)
	} else {
		refused = network.Mode != policy.NetworkUser && (errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH))
	}
	if refused {
		c.note(network.Unreachable(protocolOf(socket), to))
	}
}

// inetAddress reads the address of an internet socket.
func inetAddress(raw []byte) (netip.AddrPort, bool) {
	if len(raw) < 8 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(raw[2:])
	switch family := binary.NativeEndian.Uint16(raw); {
	case family == unix.AF_INET && len(raw) >= unix.SizeofSockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port), true
	case family == unix.AF_INET6 && len(raw) >= 24: // without a scope, as the kernel takes it
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])).Unmap(), port), true
	}
	return netip.AddrPort{}, false
}

// refusedHere reports whether a connection to the loopback was refused. On a socket
// that does not wait it is by now, and the error is for the process to fetch.
func refusedHere(socket int, err error) bool {
	if !errors.Is(err, unix.EINPROGRESS) {
		return errors.Is(err, unix.ECONNREFUSED)
	}
	const closed = 7 // TCP_CLOSE
	info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == closed
}

// listensOutside reports whether a connection to an address of the loopback would
// be taken outside.
func (b *Broker) listensOutside(to netip.AddrPort) bool {
	n := b.hostNetwork()
	return n != nil && n.Listens(to)
}

// hasAbstract reports whether somebody outside listens at an abstract name.
func (b *Broker) hasAbstract(name string) bool {
	n := b.hostNetwork()
	if n == nil {
		return false
	}
	sockets, err := n.Abstract(name)
	return err == nil && len(sockets) > 0
}

// protocolOf is what a socket speaks, in the words of a rule.
func protocolOf(socket int) string {
	number, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	switch number {
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	}
	return "tcp"
}
