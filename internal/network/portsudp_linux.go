package network

import (
	"net"

	"golang.org/x/sys/unix"
)

// askForDestinations makes each datagram come with the address that it was sent
// to. The same bytes, sent with an answer, make it leave from there: else the
// kernel would choose an address by the route, and the client would not know it.
// Where that fails, answers to some addresses of the host are lost.
func askForDestinations(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}
