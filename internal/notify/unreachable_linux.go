//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file records connections that fail, and names that are not found, because the network
// is the sandbox's own.

// recordUnreachable records that a connection failed because there is no route to the address,
// or because it is one of the loopback, where nobody listens inside and somebody does outside. In
// network mode user the gate records what it denies.
func (d *dialing) recordUnreachable(err error) {
	if err == nil || d.b.inHostNetwork() {
		return
	}
	if name, ok := abstractName(d.address); ok && errors.Is(err, unix.ECONNREFUSED) && d.b.listensAtAbstract(name) {
		d.recordSocket("@"+name, "@"+name)
		return
	}
	to, ok := inetAddress(d.address)
	if !ok {
		return
	}
	network := &d.b.config.Plan.Network
	var denied bool
	if to.Addr().IsLoopback() || to.Addr().IsUnspecified() {
		host := d.b.hostNetwork()
		denied = refusedHere(d.socket, err) && host != nil && host.Listens(to)
	} else {
		denied = network.Mode != policy.NetworkUser && (errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH))
	}
	if denied {
		d.recordDenial(judge.Unreachable(network, protocolOf(d.socket), to))
	}
}

// inetAddress reads the address of an internet socket.
func inetAddress(raw []byte) (netip.AddrPort, bool) {
	if len(raw) < 8 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(raw[2:])
	switch family := binary.NativeEndian.Uint16(raw); {
	case family == unix.AF_INET && len(raw) >= unix.SizeofSockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port), true
	case family == unix.AF_INET6 && len(raw) >= 24: // without a scope, as the kernel takes it
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])).Unmap(), port), true
	}
	return netip.AddrPort{}, false
}

// refusedHere reports whether a connection to the loopback was refused. On a socket that does
// not wait it is by now, and the error is for the process to fetch.
func refusedHere(socket int, err error) bool {
	if !errors.Is(err, unix.EINPROGRESS) {
		return errors.Is(err, unix.ECONNREFUSED)
	}
	const closed = 7 // TCP_CLOSE
	info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == closed
}

// listensAtAbstract reports whether somebody outside listens at an abstract name.
func (b *Broker) listensAtAbstract(name string) bool {
	n := b.hostNetwork()
	if n == nil {
		return false
	}
	sockets, err := n.Abstract(name)
	return err == nil && len(sockets) > 0
}

// protocolOf is what a socket speaks, in the words of a rule.
func protocolOf(socket int) string {
	number, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	switch number {
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	}
	return "tcp"
}

// In the modes none and loopback no name server can be reached. Programs take that for a
// temporary fault and try again for minutes, and the record does not have the name that they
// asked for. So when a command connects to a name server, the broker begins to receive at that
// address, in the command's own network, and answers that no name exists. It asks nobody.
//
// Programs that send their query without connecting, as musl does, are not seen: they fail at
// once, and the record has no name.

const (
	dnsPort = 53
	// These bound what a command can make the broker keep.
	maxServers = 4
	maxAskers  = 64
	maxNames   = 256
	dnsHeader  = 12
)

// nameServers are those that the broker stands in for.
type nameServers struct {
	mu     sync.Mutex
	conns  map[netip.Addr]*net.UDPConn // nil for one that cannot be stood in for
	askers map[uint16]plan.Denial      // the process that asks, by the port of its socket
	asked  map[string]bool
}

// standInFor receives at the address of a name server that a datagram socket is about to be
// connected to. It reports whether somebody does.
func (c *call) standInFor(server netip.AddrPort) bool {
	network := &c.b.config.Plan.Network
	if server.Port() != dnsPort || network.Mode != policy.NetworkNone && network.Mode != policy.NetworkLoopback {
		return false
	}
	n, addr := &c.b.nameServers, server.Addr()
	n.mu.Lock()
	defer n.mu.Unlock()
	conn, known := n.conns[addr]
	if known || len(n.conns) >= maxServers {
		return conn != nil
	}
	if n.conns == nil {
		n.conns, n.askers, n.asked = map[netip.Addr]*net.UDPConn{}, map[uint16]plan.Denial{}, map[string]bool{}
	}
	n.conns[addr] = nil
	space, err := c.network()
	if err != nil || space.Own() {
		return false
	}
	if !addr.IsLoopback() && space.AddLocal(addr) != nil {
		return false
	}
	if conn, err = space.ListenUDP(server); err != nil {
		return false // the command has a server of its own there
	}
	n.conns[addr] = conn
	go c.b.answerNames(conn)
	return true
}

// noteAsker notes which process asks by a socket that was connected.
func (c *call) noteAsker(socket int) {
	name, err := unix.Getsockname(socket)
	if err != nil {
		return
	}
	port := 0
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		port = a.Port
	case *unix.SockaddrInet6:
		port = a.Port
	}
	var d plan.Denial
	c.identify(&d)
	n := &c.b.nameServers
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.askers) >= maxAskers {
		clear(n.askers)
	}
	n.askers[uint16(port)] = d
}

// answerNames answers until the connection is closed.
func (b *Broker) answerNames(conn *net.UDPConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if b.nameServers.over() {
				return
			}
			continue // an ICMP error of an earlier answer
		}
		name, question := readQuestion(buffer[:n])
		if question == nil {
			continue
		}
		b.recordName(name, from.Port())
		_, _ = conn.WriteToUDPAddrPort(noSuchName(buffer, question), from)
	}
}

// recordName records that a name was not looked up.
func (b *Broker) recordName(name string, port uint16) {
	n := &b.nameServers
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked[name] || len(n.asked) >= maxNames || strings.HasSuffix(name, ".arpa") || !strings.Contains(name, ".") {
		return
	}
	for earlier := range n.asked {
		if strings.HasPrefix(name, earlier+".") {
			return // the same name in a domain of the host
		}
	}
	n.asked[name] = true
	d := judge.Unresolved(&b.config.Plan.Network, name)
	asker := n.askers[port]
	d.Pid, d.Program, d.Argv = asker.Pid, asker.Program, asker.Argv
	b.denials.Add(d)
}

func (n *nameServers) over() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conns == nil
}

func (n *nameServers) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		if conn != nil {
			conn.Close()
		}
	}
	n.conns = nil
}

// readQuestion reads the name of a query, and the bytes of its question; nil if it is none.
func readQuestion(b []byte) (name string, question []byte) {
	if len(b) < dnsHeader || b[2]&0x80 != 0 || binary.BigEndian.Uint16(b[4:]) != 1 {
		return "", nil
	}
	var labels []string
	at := dnsHeader
	for at < len(b) && b[at] != 0 {
		size := int(b[at])
		if size > 63 || at+1+size > len(b) {
			return "", nil
		}
		labels = append(labels, string(b[at+1:at+1+size]))
		at += 1 + size
	}
	const typeAndClass = 4
	if at+1+typeAndClass > len(b) {
		return "", nil
	}
	normal, _ := judge.NormalName(strings.Join(labels, "."))
	return normal, b[dnsHeader : at+1+typeAndClass]
}

// noSuchName is the answer to a query that the name does not exist.
func noSuchName(query, question []byte) []byte {
	const response, recursion, nameError = 0x80, 0x80, 3
	answer := append([]byte(nil), query[:2]...)
	answer = append(answer, query[2]&0x79|response, recursion|nameError, 0, 1, 0, 0, 0, 0, 0, 0)
	return append(answer, question...)
}
