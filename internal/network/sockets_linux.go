package network

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPassed is how many descriptors the kernel passes with one message.
const maxPassed = 253

// pipeUnix copies bytes and descriptors from one connection to another until the first
// ends, and returns the number of bytes. If descriptors are lost, because this process
// has too many, it ends the connection: without them the receiver would misread the
// data.
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

// sendUnix sends all bytes, and the descriptors together with the first of them.
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

// descriptors returns the descriptors in control messages. known is false if a part of
// the messages could not be read. The caller has to close the descriptors in either
// case.
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

// askForDestinations makes the kernel report the address to which each datagram was
// sent. Sending an answer with the same bytes makes that address its source. Otherwise
// the kernel would choose the source by the route, and the client might not accept the
// answer. If this fails, answers from some addresses of the host are lost.
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

// readable reports whether a descriptor can be read, or a connection accepted.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0
}
