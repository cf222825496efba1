package machine

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// diagnosed is whether this process has had a yes, which no kernel takes back: the
// question takes some 20 µs.
var diagnosed atomic.Bool

// knownDiagnostics is unixDiagnostics, asked once.
func knownDiagnostics() host.Probe {
	if diagnosed.Load() {
		return host.Probe{Outcome: host.Yes}
	}
	p := unixDiagnostics(askUnixDiagnostics)
	diagnosed.Store(p.Outcome == host.Yes)
	return p
}

// unixDiagnostics finds out whether the kernel has diagnostics of unix sockets. It
// asks for the socket with the number 0, which no socket has.
func unixDiagnostics(ask func() error) host.Probe {
	switch err := ask(); err {
	case unix.EINVAL: // from the diagnostics themselves
		return host.Probe{Outcome: host.Yes}
	case unix.ENOENT, unix.EOPNOTSUPP: // there is nobody to ask
		return host.Probe{Outcome: host.No, Cause: cause.TooOld, Reason: "the kernel has no diagnostics of unix sockets (CONFIG_UNIX_DIAG)",
			Fix: "load the kernel module unix_diag, or use a kernel that has it"}
	default: // a filter around us refuses the socket, for instance
		return host.Probe{Reason: "diagnostics of unix sockets: " + err.Error()}
	}
}

// askUnixDiagnostics returns the kernel's answer, which is an error always.
func askUnixDiagnostics() error {
	const (
		byFamily    = 20 // SOCK_DIAG_BY_FAMILY
		requestSize = 24 // struct unix_diag_req
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := make([]byte, unix.SizeofNlMsghdr+requestSize)
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], byFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST)
	message[unix.SizeofNlMsghdr] = unix.AF_UNIX
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 256)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
}
