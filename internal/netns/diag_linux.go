package netns

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fullScanPause is the shortest time between two scans of all processes. New processes
// are scanned whenever a socket is not found.
const fullScanPause = 50 * time.Millisecond

// maxSearched bounds the descriptors that are read to find the owner of one connection.
// A command may have thousands.
const maxSearched = 4096

// An ownerCache remembers which processes are in the namespace.
type ownerCache struct {
	sync.Mutex
	pids []int            // the newest last
	fd   string           // the descriptor at which the last search found a socket, in the last process of pids
	seen map[int]struct{} // the processes of the last scan
	full time.Time        // when all were scanned
}

// A diagSocket asks the kernel about sockets inside. It is opened when it is first
// needed, and then kept.
type diagSocket struct {
	sync.Mutex
	socket int
	made   bool
	closed bool
}

func (d *diagSocket) open(n *Namespace) bool {
	if !d.made && !d.closed {
		if fd, err := n.makeDiag(); err == nil {
			d.socket, d.made = fd, true
		}
	}
	return d.made
}

// makeDiag opens the socket inside, or here if this is the namespace of this process:
// joining that would need a privilege.
func (n *Namespace) makeDiag() (int, error) {
	r := diagRequest()
	if n.Own() {
		return unix.Socket(r.domain, r.kind, r.protocol)
	}
	return n.openOne(r)
}

// drop closes the socket after a failure: unread data on it could be taken for the next
// answer.
func (d *diagSocket) drop() {
	if d.made {
		unix.Close(d.socket)
	}
	d.made = false
}

func (d *diagSocket) close() {
	d.Lock()
	defer d.Unlock()
	d.drop()
	d.closed = true
}

// Owner returns the process inside that has a socket with these two ends, by its pid
// outside, and the program that it runs. It is best effort: the process may have ended,
// or have passed the socket on. 0 and "" mean unknown.
func (n *Namespace) Owner(protocol string, local, remote netip.AddrPort) (pid int, program string) {
	inode := n.socketInode(protocol, local, remote)
	if inode == 0 {
		return 0, ""
	}
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	n.owner.Lock()
	defer n.owner.Unlock()
	if pid = n.search(want); pid == 0 && n.rescan(false) {
		pid = n.search(want)
	}
	if pid == 0 && time.Since(n.owner.full) > fullScanPause && n.rescan(true) {
		pid = n.search(want) // the pid may have been reused since the last scan
	}
	if pid == 0 {
		return 0, ""
	}
	return pid, programOf(pid)
}

// rescan lists the processes of the namespace: all of them, or only those that are new
// since the last scan. It reports whether it found any.
func (n *Namespace) rescan(full bool) (more bool) {
	o := &n.owner
	if full || o.seen == nil {
		o.pids, o.seen, o.full = nil, map[int]struct{}{}, time.Now()
	}
	known := len(o.pids)
	now := map[int]struct{}{}
	for _, pid := range allProcesses() {
		now[pid] = struct{}{}
		if _, seen := o.seen[pid]; !seen && namespaceOf(pid) == n.inode {
			o.pids = append(o.pids, pid)
		}
	}
	o.seen = now
	return len(o.pids) > known
}

// search looks for the socket in the known processes: first in the one that was found
// last, then in the newest. A program that makes one connection after the other often
// has each at the same descriptor, so that descriptor is read first.
func (n *Namespace) search(want string) int {
	budget, pids := maxSearched, n.owner.pids
	if last := len(pids) - 1; last >= 0 && n.owner.fd != "" && isLink(unix.AT_FDCWD, proc(pids[last], "fd/"+n.owner.fd), want) {
		return pids[last]
	}
	for i := len(pids) - 1; i >= 0 && budget > 0; i-- {
		pid := pids[i]
		if fd := holds(pid, want, &budget); fd != "" {
			copy(pids[i:], pids[i+1:])
			pids[len(pids)-1], n.owner.fd = pid, fd
			return pid
		}
	}
	return 0
}

func proc(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// holds returns the descriptor that a process has for the socket, or "". It subtracts
// the number of links that it reads from the budget. It does not use package os, which
// would register the folder with the poller; that takes longer than reading it.
func holds(pid int, want string, budget *int) string {
	dir, err := unix.Open(proc(pid, "fd"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	entries := make([]byte, 4096)
	for *budget > 0 {
		size, err := unix.ReadDirent(dir, entries)
		if err != nil || size <= 0 {
			break
		}
		_, count, names := unix.ParseDirent(entries[:size], -1, nil)
		*budget -= count + 1
		for _, name := range names {
			if isLink(dir, name, want) {
				return name
			}
		}
	}
	return ""
}

// isLink reports whether a link in /proc has the target.
func isLink(dir int, name, want string) bool {
	var link [64]byte
	size, err := unix.Readlinkat(dir, name, link[:])
	return err == nil && string(link[:size]) == want
}

// allProcesses lists the visible processes.
func allProcesses() (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// namespaceOf returns the inode of a process's network namespace, or 0.
func namespaceOf(pid int) uint64 {
	var s unix.Stat_t
	if unix.Stat(proc(pid, "ns/net"), &s) != nil {
		return 0
	}
	return s.Ino
}

// programOf returns the path of the program that a process runs, relative to its own
// root, or, if that is unknown, its short name.
func programOf(pid int) string {
	if path, err := os.Readlink(proc(pid, "exe")); err == nil {
		return strings.TrimSuffix(path, " (deleted)")
	}
	name, _ := os.ReadFile(proc(pid, "comm"))
	return strings.TrimSpace(string(name))
}

// socketInode asks the kernel which socket would receive a packet from the remote end
// to the local one. It asks in this way because a UDP client need not be connected. It
// returns 0 if there is none.
func (n *Namespace) socketInode(protocol string, local, remote netip.AddrPort) uint32 {
	number := byte(unix.IPPROTO_TCP)
	switch {
	case !local.IsValid():
		return 0
	case protocol == "udp":
		number = unix.IPPROTO_UDP
	case protocol != "tcp":
		return 0
	}
	n.diag.Lock()
	defer n.diag.Unlock()
	if !n.diag.open(n) {
		return 0
	}
	message := inquire(n.diag.socket, number, local, remote)
	if message == nil {
		return 0
	}
	return binary.NativeEndian.Uint32(message[offsetDiagInode:])
}

const (
	sockDiagByFamily   = 20
	sizeofDiagRequest  = 56 // struct inet_diag_req_v2
	sizeofDiagResponse = 72 // struct inet_diag_msg
	offsetDiagInode    = 68
)

// inquire finds one socket by its ends and returns a struct inet_diag_msg, or nil: see
// inet_diag_find_one_icsk in the kernel.
func inquire(fd int, protocol byte, local, remote netip.AddrPort) []byte {
	b := &batch{}
	r := make([]byte, sizeofDiagRequest)
	r[0], r[1] = family(local.Addr().Unmap()), protocol
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in every state
	putEnd(r[8:], r[12:], local)
	putEnd(r[10:], r[28:], remote)
	for i := 48; i < 56; i++ {
		r[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	if protocol == unix.IPPROTO_UDP {
		// For UDP the kernel expects the ends swapped, as a packet has them.
		putEnd(r[8:], r[12:], remote)
		putEnd(r[10:], r[28:], local)
	}
	b.message(sockDiagByFamily, 0, "find a socket", r...)
	if b.transmit(fd) != nil {
		return nil
	}
	answer, err := receive(fd, make([]byte, 8192))
	if err != nil || len(answer) < unix.SizeofNlMsghdr+sizeofDiagResponse || binary.NativeEndian.Uint16(answer[4:]) != sockDiagByFamily {
		return nil
	}
	return answer[unix.SizeofNlMsghdr:]
}

// putEnd writes a port and an address in network byte order.
func putEnd(port, addr []byte, a netip.AddrPort) {
	binary.BigEndian.PutUint16(port, a.Port())
	copy(addr, a.Addr().Unmap().AsSlice())
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

// ErrNoDiagnostics means that the kernel cannot list unix sockets (CONFIG_UNIX_DIAG).
var ErrNoDiagnostics = errors.New("the kernel has no diagnostics of unix sockets")

// A Bound is the file of a unix socket as socket diagnostics report it: the low half of
// the inode number, and the device of the file system, which on some file systems
// differs from the one of stat(2). Socket is the inode number of the socket itself. It
// is 0 for a connection that its server has not accepted yet.
type Bound struct{ Inode, Device, Socket uint32 }

// DeviceNumber encodes a device as socket diagnostics do.
func DeviceNumber(major, minor uint32) uint32 { return major<<20 | minor }

// Bound calls yield with each file to which a unix socket of the namespace is bound.
func (n *Namespace) Bound(yield func(Bound)) error {
	return n.list(showVFS, func(message []byte) {
		if at, ok := boundOf(message); ok {
			yield(at)
		}
	})
}

// Abstract returns the inode numbers of the sockets with an abstract name: the
// server's, and those of the connections that it accepted. The name has no leading zero
// byte.
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

// list calls yield with the kernel's message about each unix socket of the namespace.
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
	if err := b.transmit(n.diag.socket); err != nil {
		return err
	}
	err := readList(n.diag.socket, yield)
	if err != nil {
		n.diag.drop()
	}
	return err
}

// readList reads the whole answer: unread data could be taken for the next one.
func readList(fd int, yield func([]byte)) error {
	buffer := make([]byte, 32<<10)
	for {
		part, err := receive(fd, buffer)
		if err != nil {
			return err
		}
		done, err := eachListed(part, yield)
		if done || err != nil {
			return err
		}
	}
}

// eachListed reads one part of the answer. It reports whether it was the last one.
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

// socketOf returns the inode number of the socket that a message is about.
func socketOf(message []byte) uint32 {
	return binary.NativeEndian.Uint32(message[unix.SizeofNlMsghdr+offsetUnixDiagInode:])
}

// attributeOf returns one attribute of a message about a unix socket.
func attributeOf(message []byte, want uint16) ([]byte, bool) {
	return attribute(message[unix.SizeofNlMsghdr+sizeofUnixDiagResponse:], want)
}

// Listens reports whether a TCP connection to the address would find a listener in the
// namespace.
func (n *Namespace) Listens(a netip.AddrPort) bool {
	n.diag.Lock()
	defer n.diag.Unlock()
	if !a.IsValid() || !n.diag.open(n) {
		return false
	}
	message := inquire(n.diag.socket, unix.IPPROTO_TCP, a, netip.AddrPortFrom(a.Addr(), 0))
	return message != nil && message[1] == stateListen
}
