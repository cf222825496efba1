package verify

import (
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// connectTime bounds one connection: a network that drops packets would
// otherwise keep the prober waiting for minutes.
const connectTime = 2 * time.Second

// tryNetwork makes one attempt to reach something.
func (p prober) tryNetwork(a attempt) (answer, bool) {
	switch a.Do {
	case "tcp":
		return answer{Errno: p.send(a, unix.SOCK_STREAM)}, true
	case "udp":
		return answer{Errno: p.send(a, unix.SOCK_DGRAM)}, true
	case "unix":
		message := ""
		if strings.HasPrefix(string(a.Path), "@") {
			message = p.token
		}
		return answer{Errno: connectUnix(string(a.Path), message)}, true
	case "loopback":
		return failed(talk()), true
	case "interfaces":
		return interfaces(), true
	}
	return answer{}, false
}

// send sends the token to an address of the internet.
func (p prober) send(a attempt, kind int) unix.Errno {
	at, ok := netip.AddrFromSlice(a.Path)
	if !ok {
		return unix.EINVAL
	}
	family := unix.AF_INET
	if at.Is6() {
		family = unix.AF_INET6
	}
	return connect(family, kind, sockaddr(at, int(a.N)), p.token)
}

// connectUnix connects to a unix socket of any kind, and sends a message unless
// it is empty: a server of the host should get none.
func connectUnix(path, message string) unix.Errno {
	var errno unix.Errno
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
		if errno = connect(unix.AF_UNIX, kind, &unix.SockaddrUnix{Name: path}, message); errno != unix.EPROTOTYPE {
			break
		}
	}
	return errno
}

func connect(family, kind int, to unix.Sockaddr, message string) unix.Errno {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return failed(err).Errno
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, to)
	if err == unix.EINPROGRESS {
		err = connected(fd)
	}
	if err == nil && message != "" {
		_, err = unix.Write(fd, []byte(message))
	}
	return failed(err).Errno
}

// connected waits until a connection is made.
func connected(fd int) error {
	if !wait(fd, unix.POLLOUT, connectTime) {
		return unix.ETIMEDOUT
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// talk connects to a socket of its own on the loopback.
func talk() error {
	at := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, at); err != nil {
		return err
	}
	if err := unix.Listen(fd, 1); err != nil {
		return err
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if errno := connect(unix.AF_INET, unix.SOCK_STREAM, own, "x"); errno != 0 {
		return errno
	}
	return nil
}

// interfaces lists the network interfaces that can be seen.
func interfaces() answer {
	text, err := os.ReadFile("/proc/net/dev")
	got := failed(err)
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			got.Names = append(got.Names, []byte(strings.TrimSpace(name)))
		}
	}
	return got
}
