package backendtest

import (
	"bufio"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

var networkAttackCases = []testCase{
	{"network/every-address", []string{"network.mode"}, everyAddress},
	{"network/families", []string{"network.mode", "system calls"}, families},
	{"network/netlink", []string{"network.mode"}, netlinkTricks},
	{"network/other-namespaces", []string{"network.mode", "system calls"}, otherNamespaces},
	{"network/echo", []string{"network.mode"}, echoRequests},
	{"network/user-mode", []string{"network.mode", "network.private"}, userMode},
	{"network/forwarded-port", []string{"network.mode", "network.forward"}, forwardedPort},
}

// closedNetworks are the policies under which nothing of the host can be reached. The
// last one allows everything that a rule can allow.
func (c *check) closedNetworks() map[string][]policy.Option {
	return map[string][]policy.Option{
		"none":     {policy.WithNetwork(policy.NetworkNone)},
		"loopback": {policy.WithNetwork(policy.NetworkLoopback)},
		"user":     {policy.WithNetwork(policy.NetworkUser), policy.Set("network.link", "auto")},
	}
}

// hostAddresses returns the addresses of the host's interfaces, in every spelling that
// leads to them.
func (c *check) hostAddresses() []string {
	interfaces, err := net.Interfaces()
	c.must(err)
	hosts := []string{"0.0.0.0", "127.0.0.1", "127.255.255.254", "::", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		c.must(err)
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			switch {
			case !ok:
			case n.IP.To4() != nil:
				hosts = append(hosts, n.IP.String(), "::ffff:"+n.IP.String())
			case n.IP.IsLinkLocalUnicast():
				hosts = append(hosts, n.IP.String()+"%"+i.Name, n.IP.String()+"%lo")
			default:
				hosts = append(hosts, n.IP.String())
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// beyond returns addresses that are not the host's own: its name servers, its
// neighbours by broadcast and multicast, and a metadata service.
func (c *check) beyond() []string {
	hosts := []string{"255.255.255.255", "224.0.0.251", "239.255.255.250", "ff02::fb%lo", "169.254.169.254"}
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return hosts
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "nameserver" {
			hosts = append(hosts, words[1])
		}
	}
	return hosts
}

// C3: no address of the host leads to a listener of the host, by TCP or UDP, IPv4 or
// IPv6, in any spelling. No broadcast datagram arrives.
func everyAddress(c *check) {
	tcp := c.listen("tcp", ":0")
	port := itoa(tcp.Addr().(*net.TCPAddr).Port)
	udp, err := net.ListenPacket("udp", ":"+port)
	c.must(err)
	defer func() { _ = udp.Close() }()
	for name, opts := range c.closedNetworks() {
		var ops []op
		for _, host := range c.hostAddresses() {
			ops = append(ops, dialBriefly(net.JoinHostPort(host, port)))
		}
		c.refused(c.box(opts...).do(ops...)...)
		ops = nil
		for _, host := range append(c.hostAddresses(), c.beyond()...) {
			ops = append(ops, datagram("udp", net.JoinHostPort(host, port), c.token))
		}
		c.box(opts...).do(ops...)
		c.hearsNothing(udp, "mode "+name)
	}
}

// hearsNothing fails the case if a datagram with its token arrives.
func (c *check) hearsNothing(conn net.PacketConn, what string) {
	c.must(conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
	buf := make([]byte, 100)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == c.token {
			c.Errorf("%s: a datagram from inside arrived at the host, from %v", what, from)
		}
	}
}

// C3: no socket can be made of a family that ignores network namespaces, and none that
// gives raw access to packets.
func families(c *check) {
	const (
		vsock, bluetooth, alg, nfc, qipcrtr, xdp, smc, tipc, rxrpc, can = 40, 31, 38, 39, 42, 44, 43, 30, 33, 29
	)
	var ops []op
	for _, family := range []int{vsock, bluetooth, alg, nfc, qipcrtr, xdp, smc, tipc, rxrpc, can, unix.AF_PACKET, unix.AF_KEY, unix.AF_X25, unix.AF_RDS} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			ops = append(ops, socketOp(family, kind, 0))
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []int{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW, unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			ops = append(ops, socketOp(family, unix.SOCK_RAW, protocol))
		}
		ops = append(ops, socketOp(family, unix.SOCK_PACKET, 0x300), socketOp(family, unix.SOCK_STREAM, unix.IPPROTO_SCTP), socketOp(family, unix.SOCK_DCCP, 0))
	}
	for _, opts := range c.closedNetworks() {
		c.refused(c.box(opts...).do(ops...)...)
	}
}

func socketOp(family, kind, protocol int) op {
	return op{Do: "socket", N: int64(family), M: int64(kind)<<16 | int64(protocol)}
}

// C3: a command cannot change interfaces, addresses or routes, or move an interface out
// of or into a namespace.
func netlinkTricks(c *check) {
	tricks := map[string][]byte{
		"add an address":              netlinkMessage(unix.RTM_NEWADDR, []byte{unix.AF_INET, 24, 0, 0, 1, 0, 0, 0}, attribute(unix.IFA_LOCAL, 192, 0, 2, 77)),
		"add a v6 address":            netlinkMessage(unix.RTM_NEWADDR, []byte{unix.AF_INET6, 64, 0, 0, 1, 0, 0, 0}, attribute(unix.IFA_LOCAL, make([]byte, 16)...)),
		"add a route":                 netlinkMessage(unix.RTM_NEWROUTE, append([]byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, 4, 0, 1}, make([]byte, 4)...), attribute(unix.RTA_OIF, 1, 0, 0, 0)),
		"add a rule":                  netlinkMessage(unix.RTM_NEWRULE, append([]byte{unix.AF_INET}, make([]byte, 11)...)),
		"add a neighbour":             netlinkMessage(unix.RTM_NEWNEIGH, append([]byte{unix.AF_INET, 0, 0, 0, 1, 0, 0, 0, 0x80}, make([]byte, 3)...), attribute(unix.NDA_DST, 192, 0, 2, 1)),
		"take the loopback down":      netlinkMessage(unix.RTM_NEWLINK, linkMessage(1, 0, unix.IFF_UP)),
		"make a dummy":                netlinkMessage(unix.RTM_NEWLINK, linkMessage(0, 0, 0), nested(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("dummy")...))),
		"make a veth pair":            netlinkMessage(unix.RTM_NEWLINK, linkMessage(0, 0, 0), nested(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("veth")...))),
		"take an interface elsewhere": netlinkMessage(unix.RTM_NEWLINK, linkMessage(1, 0, 0), attribute(unix.IFLA_NET_NS_PID, 1, 0, 0, 0)),
		"take one in":                 netlinkMessage(unix.RTM_NEWLINK, linkMessage(2, 0, 0), attribute(unix.IFLA_NET_NS_PID, 2, 0, 0, 0)),
	}
	var ops []op
	for name, message := range tricks {
		ops = append(ops, op{Do: "netlink", Path: text(name), Data: text(message)})
	}
	for _, opts := range c.closedNetworks() {
		c.refused(c.box(opts...).do(ops...)...)
	}
}

// netlinkMessage returns a request that asks for an acknowledgement.
func netlinkMessage(kind uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	return append(append(m, make([]byte, 8)...), body...)
}

// linkMessage returns a struct ifinfomsg.
func linkMessage(index, flags, change uint32) []byte {
	m := binary.NativeEndian.AppendUint32(make([]byte, 4), index)
	m = binary.NativeEndian.AppendUint32(m, flags)
	return binary.NativeEndian.AppendUint32(m, change)
}

func attribute(kind uint16, value ...byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	for len(a)%unix.RTA_ALIGNTO != 0 {
		a = append(a, 0)
	}
	return a
}

func nested(kind uint16, parts ...[]byte) []byte { return attribute(kind, slices.Concat(parts...)...) }

// C3: no other network namespace can be joined, through anything that leads to one.
func otherNamespaces(c *check) {
	var ops []op
	for _, p := range []string{"/proc/1/ns/net", "/proc/self/ns/net", "/proc/self/ns/user", "/proc/2/ns/net"} {
		ops = append(ops, op{Do: "setns", Path: text(p), N: unix.CLONE_NEWNET}, op{Do: "setns", Path: text(p)})
	}
	for _, opts := range c.closedNetworks() {
		c.refused(c.box(opts...).do(ops...)...)
	}
}

// C3: no host answers an echo request. On its own loopback the sandbox itself may
// answer, if the kernel lets the command ask.
func echoRequests(c *check) {
	var ops []op
	for _, host := range c.hostAddresses() {
		if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
			ops = append(ops, op{Do: "ping", To: text(host)})
		}
	}
	for _, opts := range c.closedNetworks() {
		c.refused(c.box(opts...).do(ops...)...)
	}
}

// N3 L5: in mode user the host cannot be reached even if everything is allowed, and its
// loopback cannot be reached even if every address is allowed.
func userMode(c *check) {
	l := c.listen("tcp", ":0")
	port := itoa(l.Addr().(*net.TCPAddr).Port)
	var own, loop []op
	for _, host := range c.hostAddresses() {
		o := dialBriefly(net.JoinHostPort(host, port))
		if ip := net.ParseIP(host); ip == nil || ip.IsLoopback() || ip.IsUnspecified() {
			loop = append(loop, o)
		}
		own = append(own, o)
	}
	c.refused(c.box(policy.AllowHosts("*")).do(own...)...)
	c.refused(c.box(policy.AllowHosts("*", "0.0.0.0/0", "::/0")).do(loop...)...)
	c.allowed(c.box(policy.AllowHosts("*")).do(op{Do: "talk", Path: "tcp", To: "127.0.0.1:0", Data: "inside"})...)
}

// L5: a forwarded port of the host's loopback can be reached, and no other port.
func forwardedPort(c *check) {
	forwarded, other := c.listen("tcp", "127.0.0.1:0"), c.listen("tcp", "127.0.0.1:0")
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback, policy.NetworkUser} {
		b := c.box(policy.WithNetwork(mode), policy.Set("network.forward", itoa(forwarded.Addr().(*net.TCPAddr).Port)))
		answers := b.do(dialTCP(forwarded.Addr()), dialTCP(other.Addr()))
		c.reads(answers[0], greeting)
		c.refused(answers[1])
	}
}
