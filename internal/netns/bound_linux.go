package netns

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// OpenOwn opens the namespace that this process is in itself, to ask about the
// sockets in it and for nothing else: it need not belong to a user namespace that
// could be joined.
func OpenOwn() (*Namespace, error) {
	var self unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &self); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	return &Namespace{inode: self.Ino}, nil
}

const (
	sizeofUnixDiagRequest  = 24 // struct unix_diag_req
	sizeofUnixDiagResponse = 16 // struct unix_diag_msg
	showVFS                = 2  // UDIAG_SHOW_VFS
	attrVFS                = 1  // UNIX_DIAG_VFS: inode and device, 32 bits each
	stateListen            = 10 // TCP_LISTEN
)

// ErrNoDiagnostics says that the kernel cannot list unix sockets (CONFIG_UNIX_DIAG).
var ErrNoDiagnostics = errors.New("the kernel has no diagnostics of unix sockets")

// A Bound is the file of a unix socket as the kernel's diagnostics know it: of the
// number they have the low half alone, and the device is that of the file system,
// which stat(2) does not show for all of them.
type Bound struct{ Inode, Device uint32 }

// DeviceNumber is how the diagnostics write a device.
func DeviceNumber(major, minor uint32) uint32 { return major<<20 | minor }

// Bound calls yield with each file that a unix socket of the namespace is bound
// to.
func (n *Namespace) Bound(yield func(Bound)) error {
	n.diag.Lock()
	defer n.diag.Unlock()
	if !n.diag.open(n) {
		return errors.New("no socket for socket diagnostics")
	}
	b := &batch{}
	r := make([]byte, sizeofUnixDiagRequest)
	r[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in every state
	binary.NativeEndian.PutUint32(r[12:], showVFS)
	b.message(sockDiagByFamily, unix.NLM_F_DUMP, "list unix sockets", r...)
	b.finish()
	if err := unix.Sendto(n.diag.socket, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	err := readBound(n.diag.socket, yield)
	if err != nil {
		n.diag.drop()
	}
	return err
}

// readBound reads the answer to its end: what is left would be taken for the next.
func readBound(fd int, yield func(Bound)) error {
	buffer := make([]byte, 32<<10)
	for {
		size, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		done, err := eachBound(buffer[:size], yield)
		if done || err != nil {
			return err
		}
	}
}

// eachBound reads one part of the answer. done: it is the last.
func eachBound(rest []byte, yield func(Bound)) (done bool, err error) {
	for len(rest) >= unix.SizeofNlMsghdr {
		var one []byte
		if one, rest = cut(rest); one == nil {
			return false, errors.New("socket diagnostics: a message is cut off")
		}
		switch binary.NativeEndian.Uint16(one[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			return true, refusedDump(one)
		case sockDiagByFamily:
			if at, ok := boundOf(one); ok {
				yield(at)
			}
		}
	}
	return false, nil
}

func refusedDump(message []byte) error {
	if len(message) < unix.SizeofNlMsghdr+4 {
		return errors.New("socket diagnostics: an error is cut off")
	}
	e := unix.Errno(-int32(binary.NativeEndian.Uint32(message[unix.SizeofNlMsghdr:])))
	if e == unix.ENOENT || e == unix.EOPNOTSUPP { // no handler of the family
		return ErrNoDiagnostics
	}
	return os.NewSyscallError("socket diagnostics", e)
}

func boundOf(message []byte) (Bound, bool) {
	if len(message) < unix.SizeofNlMsghdr+sizeofUnixDiagResponse {
		return Bound{}, false
	}
	b := message[unix.SizeofNlMsghdr+sizeofUnixDiagResponse:]
	for len(b) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if kind == attrVFS && size >= unix.SizeofRtAttr+8 {
			return Bound{binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])}, true
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return Bound{}, false
}

// Listens reports whether something in the namespace listens for TCP where a
// connection to the address would arrive.
func (n *Namespace) Listens(a netip.AddrPort) bool {
	n.diag.Lock()
	defer n.diag.Unlock()
	if !a.IsValid() || !n.diag.open(n) {
		return false
	}
	message := inquire(n.diag.socket, unix.IPPROTO_TCP, a, netip.AddrPortFrom(a.Addr(), 0))
	return message != nil && message[1] == stateListen
}
