package backendtest

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// briefly in N of a connect bounds it to a short time: nothing is to answer, and
// there are many.
const briefly = 500

// attackAttempts are ways out of a network.
var attackAttempts = map[string]func(op) (answer, error){
	"socket":  makeSocket,
	"netlink": askNetlink,
	"setns":   joinNamespace,
	"ping":    ping,
}

// makeSocket makes a socket of the family N; M has its type and protocol.
func makeSocket(o op) (answer, error) {
	fd, err := unix.Socket(int(o.N), int(o.M>>16), int(o.M&0xffff))
	if err != nil {
		return done(err)
	}
	return done(unix.Close(fd))
}

// askNetlink sends Data to the kernel's routing and returns what it says.
func askNetlink(o op) (answer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return done(err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, []byte(o.Data), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return done(err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, unix.MSG_DONTWAIT)
	if err != nil {
		return done(err)
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return done(errors.New("the kernel did not say whether it worked"))
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
		return done(unix.Errno(errno))
	}
	return answer{}, nil
}

// joinNamespace joins what is at Path, on a thread that is thrown away.
func joinNamespace(o op) (answer, error) {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Open(string(o.Path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, int(o.N))
			unix.Close(fd)
		}
		result <- err
	}()
	return done(<-result)
}

// ping sends an echo request to To by a socket without privileges and waits for
// the answer.
func ping(o op) (answer, error) {
	ip := net.ParseIP(string(o.To))
	family, protocol, request := unix.AF_INET, unix.IPPROTO_ICMP, []byte{8, 0, 0, 0, 0, 0, 0, 1}
	var to unix.Sockaddr
	if v4 := ip.To4(); v4 != nil {
		to = &unix.SockaddrInet4{Addr: [4]byte(v4)}
	} else {
		family, protocol, request[0] = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128
		to = &unix.SockaddrInet6{Addr: [16]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return done(err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval((200 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return done(err)
	}
	if err := unix.Connect(fd, to); err != nil {
		return done(err)
	}
	if _, err := unix.Write(fd, request); err != nil {
		return done(err)
	}
	reply := make([]byte, 1500)
	_, err = unix.Read(fd, reply)
	return done(err)
}
