package backendtest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

func itoa(n int) string { return strconv.Itoa(n) }

var networkCases = []testCase{
	{"network/host-listeners", []string{"network.mode"}, hostListeners},
	{"network/datagrams", []string{"network.mode"}, hostDatagrams},
	{"network/only-loopback", []string{"network.mode", "network.interfaces"}, onlyLoopback},
	{"network/loopback-talk", []string{"network.mode"}, loopbackTalk},
	{"network/host-mode", []string{"network.mode"}, hostMode},
}

// loopbacks returns the loopback addresses of this machine.
func (c *check) loopbacks() []string {
	out := []string{"127.0.0.1:0"}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		return append(out, "[::1]:0")
	}
	c.Logf("IPv6 is left out: the host has none")
	return out
}

// isolated are the modes in which nothing outside can be reached.
var isolated = []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback}

// C3: the host's own services cannot be reached.
func hostListeners(c *check) {
	var ops []op
	for _, a := range c.loopbacks() {
		ops = append(ops, dialTCP(c.listen("tcp", a).Addr()))
	}
	// This listens on every address of the host, including its loopback.
	l := c.listen("tcp", "0.0.0.0:0")
	addrs, err := net.InterfaceAddrs()
	c.must(err)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
			ops = append(ops, dialIn("tcp", net.JoinHostPort(ip.IP.String(), itoa(l.Addr().(*net.TCPAddr).Port))))
		}
	}
	for _, mode := range isolated {
		c.refused(c.box(policy.WithNetwork(mode)).do(ops...)...)
	}
}

// C3: a datagram does not arrive at the host.
func hostDatagrams(c *check) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	c.must(err)
	defer func() { _ = conn.Close() }()
	for _, mode := range isolated {
		c.box(policy.WithNetwork(mode)).do(datagram("udp", conn.LocalAddr().String(), c.token))
	}
	c.must(conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
	buf := make([]byte, 100)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == c.token {
			c.Fatalf("a datagram from inside arrived at the host")
		}
	}
}

// C3: there is no network interface except the loopback.
func onlyLoopback(c *check) {
	for _, mode := range isolated {
		answers := c.box(policy.WithNetwork(mode)).do(op{Do: "interfaces"}, read("/proc/net/dev"), read("/proc/net/route"))
		if slices.ContainsFunc(answers[0].List, func(n text) bool { return n != "lo" }) {
			c.Errorf("mode %s: the interfaces are %q", mode, answers[0].List)
		}
		if n := strings.Count(string(answers[1].Data), ":"); n > 1 {
			c.Errorf("mode %s: /proc/net/dev shows %d interfaces", mode, n)
		}
		if n := strings.Count(string(answers[2].Data), "\n"); n > 1 {
			c.Errorf("mode %s: there are routes: %s", mode, answers[2].Data)
		}
	}
}

// C3: programs inside reach each other, by IPv4 and IPv6.
func loopbackTalk(c *check) {
	b := c.box(policy.WithNetwork(policy.NetworkLoopback))
	for _, a := range c.loopbacks() {
		answer := b.do(op{Do: "talk", Path: "tcp", To: text(a), Data: "inside"})[0]
		c.reads(answer, "inside")
	}
}

// In mode host the command has the host's network.
func hostMode(c *check) {
	l := c.listen("tcp", "127.0.0.1:0")
	c.reads(c.box(policy.WithNetwork(policy.NetworkHost)).do(dialTCP(l.Addr()))[0], greeting)
}
