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
	offsetUnixDiagInode    = 4
	showName               = 1  // UDIAG_SHOW_NAME
	showVFS                = 2  // UDIAG_SHOW_VFS
	attrName               = 0  // UNIX_DIAG_NAME: the bytes of the address
	attrVFS                = 1  // UNIX_DIAG_VFS: inode and device, 32 bits each
	stateListen            = 10 // TCP_LISTEN
)

// ErrNoDiagnostics says that the kernel cannot list unix sockets (CONFIG_UNIX_DIAG).
var ErrNoDiagnostics = errors.New("the kernel has no diagnostics of unix sockets")

// A Bound is the file of a unix socket as the kernel's diagnostics know it: of the
// number they have the low half alone, and the device is that of the file system,
// which stat(2) does not show for all of them. Socket is the number of the socket
// itself, 0 for a connection that its server has not taken yet.
type Bound struct{ Inode, Device, Socket uint32 }

// DeviceNumber is how the diagnostics write a device.
func DeviceNumber(major, minor uint32) uint32 { return major<<20 | minor }

// Bound calls yield with each file that a unix socket of the namespace is bound
// to.
func (n *Namespace) Bound(yield func(Bound)) error {
	return n.list(showVFS, func(message []byte) {
		if at, ok := boundOf(message); ok {
			yield(at)
		}
	})
}

// Abstract returns the numbers of the sockets of the namespace that have an abstract
// name, which is without the zero in front: the server's, and those that it has
// taken connections by.
func (n *Namespace) Abstract(name string) (sockets []uint32, err error) {
	err = n.list(showName, func(message []byte) {
		if got, ok := attributeOf(message, attrName); ok && string(got) == "\x00"+name {
			if socket := socketOf(message); socket != 0 {
				sockets = append(sockets, socket)
			}
		}
	})
	return sockets, err
}

// list calls yield with what the kernel shows of each unix socket of the namespace.
func (n *Namespace) list(show uint32, yield func(message []byte)) error {
	n.diag.Lock()
	defer n.diag.Unlock()
	if !n.diag.open(n) {
		return errors.New("no socket for socket diagnostics")
	}
	b := &batch{}
	r := make([]byte, sizeofUnixDiagRequest)
	r[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in every state
	binary.NativeEndian.PutUint32(r[12:], show)
	b.message(sockDiagByFamily, unix.NLM_F_DUMP, "list unix sockets", r...)
	b.finish()
	if err := unix.Sendto(n.diag.socket, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	err := readList(n.diag.socket, yield)
	if err != nil {
		n.diag.drop()
	}
	return err
}

// readList reads the answer to its end: what is left would be taken for the next.
func readList(fd int, yield func([]byte)) error {
	buffer := make([]byte, 32<<10)
	for {
		size, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		done, err := eachListed(buffer[:size], yield)
		if done || err != nil {
			return err
		}
	}
}

// eachListed reads one part of the answer. done: it is the last.
func eachListed(rest []byte, yield func([]byte)) (done bool, err error) {
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
			if len(one) >= unix.SizeofNlMsghdr+sizeofUnixDiagResponse {
				yield(one)
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
	at, ok := attributeOf(message, attrVFS)
	if !ok || len(at) < 8 {
		return Bound{}, false
	}
	return Bound{Inode: binary.NativeEndian.Uint32(at), Device: binary.NativeEndian.Uint32(at[4:]), Socket: socketOf(message)}, true
}

// socketOf is the number of the socket that a message is about.
func socketOf(message []byte) uint32 {
	return binary.NativeEndian.Uint32(message[unix.SizeofNlMsghdr+offsetUnixDiagInode:])
}

// attributeOf is one attribute of a message.
func attributeOf(message []byte, want uint16) ([]byte, bool) {
	b := message[unix.SizeofNlMsghdr+sizeofUnixDiagResponse:]
	for len(b) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if kind == want {
			return b[unix.SizeofRtAttr:size], true
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil, false
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
