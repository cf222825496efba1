package network

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPassed is how many descriptors the kernel passes with one message.
const maxPassed = 253

// pipeUnix carries bytes and descriptors from one connection to another until the
// first ends, and returns how many bytes. Where descriptors were lost, because
// this process may have no more of them, the connection ends: what they belong to
// would be misunderstood.
func pipeUnix(to, from *net.UnixConn) (n int64) {
	data, control := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(maxPassed*4))
	for {
		size, passed, flags, _, err := from.ReadMsgUnix(data, control)
		ok := err == nil && size > 0 && flags&unix.MSG_CTRUNC == 0
		fds, known := descriptors(control[:passed])
		if ok && known {
			ok = sendUnix(to, data[:size], fds)
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		if !ok || !known {
			_ = to.CloseWrite()
			_ = from.CloseRead()
			return n
		}
		n += int64(size)
	}
}

// sendUnix sends all bytes, the descriptors with the first of them.
func sendUnix(to *net.UnixConn, data []byte, fds []int) bool {
	var control []byte
	if len(fds) > 0 {
		control = syscall.UnixRights(fds...)
	}
	n, _, err := to.WriteMsgUnix(data, control, nil)
	if err == nil && n < len(data) {
		_, err = to.Write(data[n:])
	}
	return err == nil
}

// descriptors are those that a control message passes. They are this process's
// now, to be closed, also where the rest of the message cannot be read.
func descriptors(control []byte) (fds []int, known bool) {
	if len(control) == 0 {
		return nil, true
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, false
	}
	known = true
	for i := range messages {
		passed, err := unix.ParseUnixRights(&messages[i])
		known = known && err == nil
		fds = append(fds, passed...)
	}
	return fds, known
}

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

// readable reports whether something can be read or accepted.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0
}
