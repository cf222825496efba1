//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// In the modes none and loopback no name server can be reached. Programs take that
// for a fault that passes, and try again for minutes; and nobody knows which name
// they asked for. So when a command connects to a name server, the broker begins to
// receive at that address, in the command's own network, and answers that no name
// exists. It asks nobody. A command that looks up no name has none of this.
//
// Not seen are programs that send their query without connecting, as musl does: they
// fail at once, and the record has no name.

const (
	dnsPort = 53
	// maxServers and maxAskers bound what a command can make the broker keep.
	maxServers = 4
	maxAskers  = 64
	maxNames   = 256
	dnsHeader  = 12
)

// names are the name servers that the broker stands in for.
type names struct {
	mu      sync.Mutex
	servers map[netip.Addr]*net.UDPConn // nil for one that cannot be stood in for
	askers  map[uint16]plan.Denial      // who asks, by the port of its socket
	asked   map[string]bool
}

// standIn receives at the address of a name server that a datagram socket is about to
// be connected to. It reports whether somebody does.
func (c *call) standIn(to netip.AddrPort) bool {
	network := &c.b.config.Plan.Network
	if to.Port() != dnsPort || network.Mode != policy.NetworkNone && network.Mode != policy.NetworkLoopback {
		return false
	}
	n := &c.b.names
	n.mu.Lock()
	defer n.mu.Unlock()
	conn, known := n.servers[to.Addr()]
	if known || len(n.servers) >= maxServers {
		return conn != nil
	}
	if n.servers == nil {
		n.servers, n.askers, n.asked = map[netip.Addr]*net.UDPConn{}, map[uint16]plan.Denial{}, map[string]bool{}
	}
	n.servers[to.Addr()] = nil
	space, err := c.b.namespaceOf(c)
	if err != nil || space.Own() {
		return false
	}
	if !to.Addr().IsLoopback() && space.AddLocal(to.Addr()) != nil {
		return false
	}
	if conn, err = space.ListenUDP(to); err != nil {
		return false // the command has a server of its own there
	}
	n.servers[to.Addr()] = conn
	go c.b.answerNames(conn)
	return true
}

// asks notes who asks by a socket that was connected.
func (c *call) asks(socket int) {
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
	n := &c.b.names
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
		if err != nil {
			if opErr, ok := err.(*net.OpError); ok && opErr.Err == net.ErrClosed {
				return
			}
			if b.names.over() {
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
	n := &b.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked[name] || len(n.asked) >= maxNames || strings.HasSuffix(name, ".arpa") || name == "" || !strings.Contains(name, ".") {
		return
	}
	for earlier := range n.asked {
		if strings.HasPrefix(name, earlier+".") {
			return // the same name in a domain of the host
		}
	}
	n.asked[name] = true
	d := b.config.Plan.Network.Unresolved(name)
	asker := n.askers[port]
	d.Pid, d.Program, d.Argv = asker.Pid, asker.Program, asker.Argv
	b.denials.Add(d)
}

func (n *names) over() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers == nil
}

func (n *names) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.servers {
		if conn != nil {
			conn.Close()
		}
	}
	n.servers = nil
}

// readQuestion reads the name of a query, and the bytes of its question; nil if it is
// none.
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
	normal, _ := plan.NormalName(strings.Join(labels, "."))
	return normal, b[dnsHeader : at+1+typeAndClass]
}

// noSuchName is the answer to a query that the name does not exist.
func noSuchName(query, question []byte) []byte {
	const response, recursion, nameError = 0x80, 0x80, 3
	answer := append([]byte(nil), query[:2]...)
	answer = append(answer, query[2]&0x79|response, recursion|nameError, 0, 1, 0, 0, 0, 0, 0, 0)
	return append(answer, question...)
}
