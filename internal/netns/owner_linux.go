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

// fullScanPause is the least time between two looks at every process. Those that
// are new are looked at whenever a socket is not found.
const fullScanPause = 50 * time.Millisecond

// maxSearched bounds the descriptors that are looked at for one connection: a
// command with thousands of them does not keep us busy.
const maxSearched = 4096

// An ownerCache remembers which processes are in the namespace.
type ownerCache struct {
	sync.Mutex
	pids []int            // the newest are the last
	fd   string           // the descriptor that was found last, in the last of them
	seen map[int]struct{} // those that have been looked at
	full time.Time        // when all were
}

// A diagSocket asks the kernel about sockets inside. It is made when it is first
// needed, and kept.
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

// makeDiag makes the socket inside. To join the namespace that we are in would take
// a privilege.
func (n *Namespace) makeDiag() (int, error) {
	r := diagRequest()
	if n.Own() {
		return unix.Socket(r.domain, r.kind, r.protocol)
	}
	return n.make(r)
}

// drop closes the socket after a failure: what is left on it would be taken for the
// next answer.
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

// Owner finds the process inside that has a socket with these two ends, and the
// program that it runs; the number is the one that we see. It is best effort: the
// process may have ended, or passed the socket on. 0 and "" mean not known.
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
		pid = n.search(want) // a number that was seen before may mean another process
	}
	if pid == 0 {
		return 0, ""
	}
	return pid, programOf(pid)
}

// rescan looks which processes there are: at all of them, or at those that have
// come since. It reports whether there are any that were not known.
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

// search looks for the socket in the processes that are known: first in the one that
// was found last, then in the newest. A program that makes one connection after the
// other has each at the same descriptor, so that is looked at before all.
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

// holds finds the descriptor of the socket that a process has, or "". It takes what
// it looks at off the budget. It opens the folder by itself: package os would
// offer it to the poller, which takes longer than reading it.
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

// isLink reports whether a link of /proc stands for what is wanted.
func isLink(dir int, name, want string) bool {
	var link [64]byte
	size, err := unix.Readlinkat(dir, name, link[:])
	return err == nil && string(link[:size]) == want
}

// allProcesses lists the processes that we can see.
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

// namespaceOf is the inode of a process's network namespace, or 0.
func namespaceOf(pid int) uint64 {
	var s unix.Stat_t
	if unix.Stat(proc(pid, "ns/net"), &s) != nil {
		return 0
	}
	return s.Ino
}

// programOf is the path that a process executes, as its own root has it, or else
// its short name.
func programOf(pid int) string {
	if path, err := os.Readlink(proc(pid, "exe")); err == nil {
		return strings.TrimSuffix(path, " (deleted)")
	}
	name, _ := os.ReadFile(proc(pid, "comm"))
	return strings.TrimSpace(string(name))
}

// socketInode asks the kernel for the socket that a packet from the remote end to
// the local one would reach: a client of UDP need not be connected.
func (n *Namespace) socketInode(protocol string, local, remote netip.AddrPort) uint32 {
	number, ok := diagProtocol(protocol)
	if !ok || !local.IsValid() {
		return 0
	}
	n.diag.Lock()
	defer n.diag.Unlock()
	if !n.diag.open(n) {
		return 0
	}
	return diagnose(n.diag.socket, number, local, remote)
}

func diagProtocol(name string) (byte, bool) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	}
	return 0, false
}

const (
	sockDiagByFamily   = 20
	sizeofDiagRequest  = 56 // struct inet_diag_req_v2
	sizeofDiagResponse = 72 // struct inet_diag_msg
	offsetDiagInode    = 68
)

// diagnose finds the inode of one socket, or 0.
func diagnose(fd int, protocol byte, local, remote netip.AddrPort) uint32 {
	message := inquire(fd, protocol, local, remote)
	if message == nil {
		return 0
	}
	return binary.NativeEndian.Uint32(message[offsetDiagInode:])
}

// inquire finds one socket exactly, as a struct inet_diag_msg: see
// inet_diag_find_one_icsk in the kernel. It is nil if there is none.
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
		// The look-up of UDP takes the ends the other way round, as a packet has them.
		putEnd(r[8:], r[12:], remote)
		putEnd(r[10:], r[28:], local)
	}
	b.message(sockDiagByFamily, 0, "find a socket", r...)
	b.finish()
	if unix.Sendto(fd, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return nil
	}
	answer := make([]byte, 8192)
	for {
		size, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || size < unix.SizeofNlMsghdr+sizeofDiagResponse || binary.NativeEndian.Uint16(answer[4:]) != sockDiagByFamily {
			return nil
		}
		return answer[unix.SizeofNlMsghdr:size]
	}
}

// putEnd writes a port and an address in the order of the network.
func putEnd(port, addr []byte, a netip.AddrPort) {
	binary.BigEndian.PutUint16(port, a.Port())
	copy(addr, a.Addr().Unmap().AsSlice())
}
