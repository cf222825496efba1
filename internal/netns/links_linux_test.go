package netns

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// L5: both kinds of link have their addresses and routes at once, and packets
// come out.
func TestLinks(t *testing.T) {
	for _, kind := range []policy.Link{policy.LinkTUN, policy.LinkVeth} {
		t.Run(kind.String(), func(t *testing.T) {
			if kind == policy.LinkTUN {
				needTUN(t)
			}
			in := newInside(t)
			before := descriptors(t)
			l, err := in.MakeLink(kind, testConfig)
			if err != nil {
				t.Fatal(err)
			}
			if l.Ethernet != (kind == policy.LinkVeth) || l.MTU != testConfig.MTU || !l.IPv6 {
				t.Errorf("the link is %+v", l)
			}
			checkLink(t, in)
			for _, target := range []string{"203.0.113.7:9", "[2001:db8::7]:9", "198.18.0.1:9", "198.19.3.4:9", "198.18.7.7:9"} {
				checkPacket(t, in, l, netip.MustParseAddrPort(target))
			}
			if _, err := in.MakeLink(kind, testConfig); err == nil {
				t.Error("it could be made twice")
			}
			l.Close()
			if after := descriptors(t); !slices.Equal(after, before) {
				t.Errorf("sockets before %v, after %v", before, after)
			}
		})
	}
}

func needTUN(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	f.Close()
}

func checkLink(t *testing.T, in *inside) {
	t.Helper()
	testenv.Need(t, "ip")
	addresses := in.run(t, "ip", "addr", "show")
	for _, want := range []string{"198.18.0.2/15", "fd63:6c6f:6368::2/64", "127.0.0.1/8", "::1/128", "mtu 65520"} {
		if !strings.Contains(addresses, want) {
			t.Errorf("no %s in\n%s", want, addresses)
		}
	}
	for _, wrong := range []string{"tentative", "fe80:", "NO-CARRIER"} {
		if strings.Contains(addresses, wrong) {
			t.Errorf("%s in\n%s", wrong, addresses)
		}
	}
	routes := in.run(t, "ip", "route") + in.run(t, "ip", "-6", "route")
	for _, want := range []string{"default via 198.18.0.1 dev cloche0", "default via fd63:6c6f:6368::1 dev cloche0"} {
		if !strings.Contains(routes, want) {
			t.Errorf("no %s in\n%s", want, routes)
		}
	}
}

// checkPacket sends a datagram inside and reads it outside.
func checkPacket(t *testing.T, in *inside, l *Link, target netip.AddrPort) {
	t.Helper()
	c, err := in.DialUDP(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "datagram")
	_ = l.File.SetReadDeadline(time.Now().Add(testenv.Patience))
	packet := make([]byte, 1<<16)
	for { // the kernel may say something of its own
		size, err := l.File.Read(packet)
		if err != nil {
			t.Fatalf("%v: %v", target, err)
		}
		if bytes.HasSuffix(packet[:size], []byte("datagram")) {
			if l.Ethernet && (!bytes.HasPrefix(packet, l.Gateway[:]) || !bytes.Equal(packet[6:12], l.MAC[:])) {
				t.Errorf("%v: the frame begins with %x", target, packet[:14])
			}
			return
		}
	}
}

// Audit: the process behind a connection is found, by both protocols and both
// families, connected or not.
func TestOwner(t *testing.T) {
	in := newInside(t)
	link, err := in.makeLink(t)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	testenv.Need(t, "python3")
	for _, c := range []struct{ protocol, script, remote string }{
		{"tcp", "s=socket.create_connection(('127.0.0.1',SERVER))", "127.0.0.1"},
		{"tcp", "s=socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1',SERVER))", "127.0.0.1"},
		{"udp", "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(('203.0.113.1',9))", "203.0.113.1"},
		{"udp", "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.sendto(b'x',('203.0.113.1',9))", "203.0.113.1"},
		{"udp", "s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM); s.sendto(b'x',('2001:db8::1',9))", "2001:db8::1"},
		{"udp", "s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM); s.sendto(b'x',('::ffff:203.0.113.1',9))", "203.0.113.1"},
	} {
		t.Run(c.protocol+" "+c.remote, func(t *testing.T) { checkOwner(t, in, c.protocol, c.script, netip.MustParseAddr(c.remote)) })
	}
	if pid, program := in.Owner("tcp", netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")); pid != 0 || program != "" {
		t.Errorf("a connection that does not exist is of %d, %s", pid, program)
	}
	if pid, _ := in.Owner("icmp", netip.AddrPort{}, netip.AddrPort{}); pid != 0 {
		t.Errorf("nothing is of %d", pid)
	}
}

func checkOwner(t *testing.T, in *inside, protocol, script string, remote netip.Addr) {
	t.Helper()
	l, err := in.ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	script = strings.ReplaceAll(script, "SERVER", fmt.Sprint(port))
	cmd := in.command(t, "python3", "-c", "import socket,sys\n"+script+"\nprint(s.getsockname()[1],flush=True)\nsys.stdin.read()")
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal("cannot start python3")
	}
	defer func() { stdin.Close(); _ = cmd.Wait() }()
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	var local uint16
	if _, err := fmt.Sscan(line, &local); err != nil {
		t.Fatal(err)
	}
	here, there := netip.MustParseAddr("198.18.0.2"), netip.AddrPortFrom(remote, 9)
	switch {
	case protocol == "tcp":
		here, there = remote, netip.AddrPortFrom(remote, uint16(port))
	case remote.Is6():
		here = netip.MustParseAddr("fd63:6c6f:6368::2")
	}
	pid, program := in.Owner(protocol, netip.AddrPortFrom(here, local), there)
	if pid != cmd.Process.Pid || !strings.Contains(program, "python") {
		t.Errorf("owner is %d, %q; want %d, python", pid, program, cmd.Process.Pid)
	}
}
