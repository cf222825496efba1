package usernet

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
)

// datagram is a UDP packet.
func datagram(from, to string) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	udp := make([]byte, header.UDPMinimumSize+1)
	header.UDP(udp).Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: uint16(len(udp))})
	return ipPacket(protoUDP, src.Addr(), dst.Addr(), udp)
}

// edit changes bytes of a packet.
func edit(b []byte, change func(b []byte)) []byte {
	b = slices.Clone(b)
	change(b)
	return b
}

// L5: what reaches the stack is what a client of it sends, and nothing else.
func TestFilter(t *testing.T) {
	good4, good6 := datagram("198.18.0.2:1", "203.0.113.7:2"), datagram("[fd63:6c6f:6368::2]:1", "[2001:db8::7]:2")
	echo4 := ipPacket(protoICMP, inside4, far4, []byte{8, 0, 0, 0, 0, 1, 0, 1})
	echo6 := ipPacket(protoICMPv6, inside6, far6, []byte{128, 0, 0, 0, 0, 1, 0, 1})
	fragment6 := func(next uint8, rest ...byte) []byte {
		return ipPacket(protoFragment, inside6, far6, append([]byte{next, 0, 0, 1, 0, 0, 0, 1}, rest...))
	}
	tests := []struct {
		name   string
		packet []byte
		want   action
	}{
		{"datagram v4", good4, accept},
		{"datagram v6", good6, accept},
		{"padded", append(slices.Clone(good4), 0, 0, 0, 0), accept},
		{"echo v4", echo4, accept},
		{"echo v6", echo6, accept},
		{"fragment v6", fragment6(protoUDP, 0, 1, 0, 2, 0, 8, 0, 0), accept},
		{"another version", edit(good4, func(b []byte) { b[0] = 0x55 }), drop},
		{"nothing", nil, drop},
		{"half a header v4", good4[:19], drop},
		{"half a header v6", good6[:39], drop},
		{"cut v4", good4[:len(good4)-1], drop},
		{"cut v6", good6[:len(good6)-1], drop},
		{"a length below the header", edit(good4, func(b []byte) { binary.BigEndian.PutUint16(b[2:], 19) }), drop},
		{"options", edit(good4, func(b []byte) { b[0] = 0x46 }), drop},
		{"header length 0", edit(good4, func(b []byte) { b[0] = 0x40 }), drop},
		{"spoofed source v4", datagram("198.18.0.3:1", "203.0.113.7:2"), drop},
		{"spoofed source v6", datagram("[fd63:6c6f:6368::3]:1", "[2001:db8::7]:2"), drop},
		{"the gateway's source", datagram("198.18.0.1:1", "203.0.113.7:2"), drop},
		{"loopback source", datagram("127.0.0.1:1", "203.0.113.7:2"), drop},
		{"link-local source", datagram("[fe80::1]:1", "[2001:db8::7]:2"), drop},
		{"loopback v4", datagram("198.18.0.2:1", "127.0.0.1:2"), drop},
		{"loopback v6", datagram("[fd63:6c6f:6368::2]:1", "[::1]:2"), drop},
		{"loopback in v6", ipPacket(protoUDP, inside6, netip.MustParseAddr("::ffff:127.0.0.1"), make([]byte, 8)), drop},
		{"unspecified", datagram("198.18.0.2:1", "0.0.0.0:2"), drop},
		{"itself", datagram("198.18.0.2:1", "198.18.0.2:2"), drop},
		{"multicast v4", datagram("198.18.0.2:1", "224.0.0.251:5353"), drop},
		{"multicast v6", datagram("[fd63:6c6f:6368::2]:1", "[ff02::fb]:5353"), drop},
		{"broadcast", datagram("198.18.0.2:1", "255.255.255.255:67"), drop},
		{"link-local v6", datagram("[fd63:6c6f:6368::2]:1", "[fe80::1]:2"), drop},
		{"control message v4", edit(echo4, func(b []byte) { b[20] = byte(header.ICMPv4DstUnreachable) }), drop},
		{"redirect v4", edit(echo4, func(b []byte) { b[20] = byte(header.ICMPv4Redirect) }), drop},
		{"router advertisement", edit(echo6, func(b []byte) { b[40] = byte(header.ICMPv6RouterAdvert) }), drop},
		{"router advertisement in a fragment", fragment6(protoICMPv6, byte(header.ICMPv6RouterAdvert), 0, 0, 0, 0, 0, 0, 0), drop},
		{"hop-by-hop", ipPacket(protoHopByHop, inside6, far6, make([]byte, 8)), drop},
		{"half a fragment header", ipPacket(protoFragment, inside6, far6, make([]byte, 7)), drop},
		{"routing header", ipPacket(43, inside6, far6, make([]byte, 8)), refuse},
		{"fragment in a fragment", fragment6(protoFragment, make([]byte, 8)...), refuse},
		{"SCTP v4", ipPacket(132, inside4, far4, make([]byte, 12)), refuse},
		{"SCTP v6", ipPacket(132, inside6, far6, make([]byte, 12)), refuse},
		{"IP in IP", ipPacket(4, inside4, far4, good4), refuse},
		{"GRE", ipPacket(47, inside4, far4, good4), refuse},
	}
	f := &filter{own: []netip.Addr{inside4, inside6}}
	for _, test := range tests {
		packet, _, got := f.inspect(test.packet)
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if got == refuse && len(controlMessage(packet, noProtocol)) == 0 {
			t.Errorf("%s: it is refused with no message", test.name)
		}
	}
}

// Questions who has an address are answered for all but the sandbox's own.
func TestNeighbours(t *testing.T) {
	e := &ethernet{mac: "\x02\x00\x00\x00\x00\x01", peer: "\x02\x00\x00\x00\x00\x02", own: []netip.Addr{inside4, inside6}}
	arp := func(target netip.Addr) []byte {
		b := make([]byte, header.ARPSize)
		h := header.ARP(b)
		h.SetIPv4OverEthernet()
		h.SetOp(header.ARPRequest)
		copy(h.HardwareAddressSender(), e.peer)
		copy(h.ProtocolAddressSender(), inside4.AsSlice())
		copy(h.ProtocolAddressTarget(), target.AsSlice())
		return b
	}
	solicit := func(from, target netip.Addr) []byte {
		b := make([]byte, neighbourSize)
		b[0] = byte(header.ICMPv6NeighborSolicit)
		copy(b[neighbourTarget:], target.AsSlice())
		return edit(ipPacket(protoICMPv6, from, target, b), func(b []byte) { b[7] = maxHopLimit })
	}
	tests := []struct {
		name     string
		kind     tcpip.NetworkProtocolNumber
		packet   []byte
		answered bool
	}{
		{"gateway v4", header.ARPProtocolNumber, arp(gateway4), true},
		{"anybody v4", header.ARPProtocolNumber, arp(far4), true},
		{"itself v4", header.ARPProtocolNumber, arp(inside4), false},
		{"cut v4", header.ARPProtocolNumber, arp(far4)[:10], false},
		{"gateway v6", header.IPv6ProtocolNumber, solicit(inside6, gateway6), true},
		{"itself v6", header.IPv6ProtocolNumber, solicit(inside6, inside6), false},
		{"is it in use v6", header.IPv6ProtocolNumber, solicit(netip.IPv6Unspecified(), gateway6), false},
		{"from afar v6", header.IPv6ProtocolNumber, edit(solicit(inside6, gateway6), func(b []byte) { b[7] = 64 }), false},
		{"cut v6", header.IPv6ProtocolNumber, solicit(inside6, gateway6)[:50], false},
	}
	for _, test := range tests {
		answer, _ := e.inspect(test.kind, test.packet)
		if (answer != nil) != test.answered {
			t.Errorf("%s: answered with %x", test.name, answer)
		}
	}
}

// L5: no bytes on the link bring the stack down, whatever their order.
func FuzzPackets(f *testing.F) {
	for _, packet := range [][]byte{
		datagram("198.18.0.2:1", "203.0.113.7:2"), datagram("[fd63:6c6f:6368::2]:1", "[2001:db8::7]:2"),
		ipPacket(protoTCP, inside4, far4, []byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0}),
		ipPacket(protoTCP, inside6, far6, []byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 255, 255, 0, 0, 0, 0, 3, 3, 14, 1}),
		ipPacket(protoICMP, inside4, gateway4, []byte{8, 0, 0, 0, 0, 1, 0, 1}),
		ipPacket(protoFragment, inside6, far6, []byte{17, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 2, 0, 8, 0, 0}),
	} {
		f.Add(slices.Concat(packet, packet), uint16(len(packet)))
	}
	inside, file := linkPair(f)
	gate := &testGate{refuse: func(string, netip.AddrPort) *testRefusal { return &testRefusal{} }}
	e := newTestEndpoint(file)
	s := startOn(f, e, gate)
	go func() { _, _ = io.Copy(io.Discard, inside) }()
	f.Fuzz(func(_ *testing.T, b []byte, cut uint16) {
		cut = min(cut, uint16(min(len(b), 65535)))
		for _, packet := range [][]byte{b[:cut], b[cut:]} {
			if len(packet) <= maxPacket {
				inject(s, packet)
				e.ethernetOnly(packet)
			}
		}
	})
}

// ethernetOnly looks at the bytes as a frame's, too.
func (e *endpoint) ethernetOnly(b []byte) {
	eth := &ethernet{mac: "\x02\x00\x00\x00\x00\x01", peer: "\x02\x00\x00\x00\x00\x02", own: e.filter.own}
	for _, kind := range []tcpip.NetworkProtocolNumber{header.ARPProtocolNumber, header.IPv6ProtocolNumber, header.IPv4ProtocolNumber} {
		eth.inspect(kind, b)
	}
}

// inject handles a packet as if it had been read.
func inject(s *Stack, packet []byte) {
	r := &reader{endpoint: s.link}
	r.view = buffer.NewViewSize(maxPacket)
	copy(r.view.AsSlice(), packet)
	r.handle(len(packet))
	if r.view != nil {
		r.view.Release()
	}
}

// A flood of requests is bounded: the stack goes on, and holds no more than it may.
func TestFloods(t *testing.T) {
	inside, file := linkPair(t)
	go func() { _, _ = io.Copy(io.Discard, inside) }()
	release := make(chan struct{})
	gate := &testGate{refuse: func(string, netip.AddrPort) *testRefusal {
		<-release
		return &testRefusal{}
	}}
	e := newTestEndpoint(file)
	s := startOn(t, e, gate)
	t.Cleanup(func() { close(release) })
	syn := []byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0}
	big := make([]byte, 60000)
	binary.BigEndian.PutUint16(big[4:], uint16(len(big)))
	for i := range 5000 {
		for _, b := range [][]byte{syn, big} {
			binary.BigEndian.PutUint16(b, uint16(i))
			binary.BigEndian.PutUint16(b[2:], 99)
		}
		inject(s, ipPacket(protoTCP, inside4, far4, syn))
		inject(s, ipPacket(protoUDP, inside4, far4, big))
		inject(s, ipPacket(protoICMP, inside4, far4, []byte{8, 0, 0, 0, byte(i >> 8), byte(i), 0, 1}))
	}
	s.conns.mu.Lock()
	requests := len(s.conns.pending)
	s.conns.mu.Unlock()
	s.flows.mu.Lock()
	flows := len(s.flows.all)
	s.flows.mu.Unlock()
	if requests > maxPending || flows > maxFlows || s.flows.queued.Load() > queueBudget || s.pings.running.Load() > maxPings {
		t.Errorf("%d requests, %d flows with %d bytes, %d pings are under way", requests, flows, s.flows.queued.Load(), s.pings.running.Load())
	}
	if requests == 0 || flows == 0 || s.pings.running.Load() == 0 {
		t.Errorf("nothing was under way: %d requests, %d flows, %d pings", requests, flows, s.pings.running.Load())
	}
}

// linkPair is a link with no kernel behind it.
func linkPair(t testing.TB) (inside, outside *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	inside, outside = os.NewFile(uintptr(fds[0]), "inside"), os.NewFile(uintptr(fds[1]), "outside")
	t.Cleanup(func() { inside.Close() })
	return inside, outside
}

func newTestEndpoint(file *os.File) *endpoint {
	return &endpoint{Endpoint: channel.New(0, 65520, ""), file: file, filter: filter{own: []netip.Addr{inside4, inside6}}, done: make(chan struct{})}
}

// startOn starts a stack on an endpoint that the test has made.
func startOn(t testing.TB, e *endpoint, gate *testGate) *Stack {
	t.Helper()
	raw, err := e.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	e.raw = raw
	if err := raw.Control(func(fd uintptr) { e.fd = int(fd) }); err != nil {
		t.Fatal(err)
	}
	s, err := startWith(e, gate, []netip.Addr{gateway4, gateway6}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// noiseVariable makes this program send random packets instead of running tests.
const noiseVariable = "USERNET_TEST_NOISE"

func TestMain(m *testing.M) {
	if os.Getenv(noiseVariable) != "" {
		os.Exit(sendNoise())
	}
	if address := os.Getenv(hastyVariable); address != "" {
		os.Exit(sendHastily(address))
	}
	os.Exit(m.Run())
}

// Random packets from a raw socket inside, as a program with privileges in its
// own namespace could send them, while others work.
func TestHostilePackets(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		s := newSandbox(t, kind, &testGate{})
		port := listen(t, false, func(c net.Conn) { _, _ = io.Copy(c, c) })
		noise := s.command(t, os.Args[0])
		noise.Env = append(os.Environ(), noiseVariable+"=1")
		noise.Stderr = os.Stderr
		if err := noise.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- noise.Wait() }()
		for running := true; running; {
			select {
			case err := <-ended:
				if running = false; err != nil {
					t.Error("the program that sends noise:", err)
				}
			default:
			}
			c, err := s.tryDial(netip.AddrPortFrom(far4, port))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "hello")
			b := make([]byte, 5)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
				t.Fatalf("%q, %v", b, err)
			}
			c.Close()
		}
	})
}

// sendNoise sends packets that are nearly right.
func sendNoise() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		fmt.Fprintln(os.Stderr, "raw socket:", err)
		return 1
	}
	sent := 0
	for seed := range uint64(20000) {
		b, _ := io.ReadAll(random(seed, int64(4+seed%200)))
		proto := []uint8{protoTCP, protoUDP, protoICMP, protoFragment, 132}[seed%5]
		packet := ipPacket(proto, inside4, far4, b[4:])
		if seed%3 == 0 {
			packet[int(b[0])%20] ^= 1 << (b[1] % 8)
		}
		if unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: far4.As4()}) == nil {
			sent++
		}
	}
	if sent < 5000 {
		fmt.Fprintln(os.Stderr, "only", sent, "packets were sent")
		return 1
	}
	return 0
}
