package usernet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// echoServer answers datagrams on the loopback of the host.
func echoServer(t testing.TB, v6 bool) uint16 {
	t.Helper()
	address := "127.0.0.1:0"
	if v6 {
		address = "[::1]:0"
	}
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, maxPacket)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
	})
	return netip.MustParseAddrPort(c.LocalAddr().String()).Port()
}

func (s *sandbox) dialUDP(t testing.TB, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := s.DialUDP(context.Background(), to)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// L5: datagrams of all sizes arrive, also those that are larger than the MTU
// and come in fragments.
func TestDatagramsOfAllSizes(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
				s := newSandbox(t, kind, &testGate{})
				c := s.dialUDP(t, netip.AddrPortFrom(far(v6), echoServer(t, v6)))
				for _, size := range []int{0, 1, 2, 512, 1232, 1472, 1473, 9000, 32767, 32768, 65000, 65492, 65493, 65507} {
					sent, _ := io.ReadAll(random(uint64(size), int64(size)))
					if _, err := c.Write(sent); err != nil {
						t.Fatalf("%d bytes: %v", size, err)
					}
					got := make([]byte, maxPacket)
					n, err := c.Read(got)
					if err != nil || !bytes.Equal(got[:n], sent) {
						t.Fatalf("%d bytes came back as %d: %v", size, n, err)
					}
				}
			})
		}
	})
}

// L5: the network can be used as soon as it is there: not even the first datagram is
// lost while the kernel gets round to queues and addresses.
func TestFirstDatagram(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		for _, v6 := range []bool{false, true} {
			port := echoServer(t, v6)
			for i := range 20 {
				c := newSandbox(t, kind, &testGate{}).dialUDP(t, netip.AddrPortFrom(far(v6), port))
				_, _ = c.Write([]byte("x"))
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatalf("v6=%v, sandbox %d: %v", v6, i, err)
				}
			}
		}
	})
}

// N3: a refused datagram is answered at once, and the gate is not asked again for
// each that follows.
func TestRefusedDatagrams(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		for _, v6 := range []bool{false, true} {
			gate := &testGate{refuse: func(string, netip.AddrPort) *testRefusal { return &testRefusal{} }}
			s := newSandbox(t, kind, gate)
			c := s.dialUDP(t, netip.AddrPortFrom(far(v6), 9))
			for range 5 {
				_, _ = c.Write([]byte("x"))
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("v6=%v: %v", v6, err)
				}
			}
			if n := len(gate.asked()); n != 1 {
				t.Errorf("v6=%v: the gate was asked %d times", v6, n)
			}
		}
	})
}

// A port of the host on which nobody listens refuses datagrams inside, too.
func TestDatagramsToNobody(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		l, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		s := newSandbox(t, kind, &testGate{})
		c := s.dialUDP(t, netip.AddrPortFrom(far4, netip.MustParseAddrPort(l.LocalAddr().String()).Port()))
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
}

// The table of flows is bounded: the flow that was silent longest goes, and the
// others go on.
func TestFlowsAreBounded(t *testing.T) {
	gate := &testGate{}
	s := newSandbox(t, "veth", gate)
	port := echoServer(t, false)
	ask := func(c *net.UDPConn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	dst := netip.AddrPortFrom(far4, port)
	first := s.dialUDP(t, dst)
	for i := range maxFlows + 50 {
		c := s.dialUDP(t, dst)
		if err := errors.Join(ask(c), ask(first)); err != nil {
			t.Fatalf("flow %d: %v", i, err)
		}
		c.Close()
	}
	s.flows.mu.Lock()
	n := len(s.flows.all)
	s.flows.mu.Unlock()
	if n != maxFlows {
		t.Errorf("%d flows are open; the bound is %d", n, maxFlows)
	}
	asked := 0
	for _, client := range gate.asked() {
		if client.Port() == netip.MustParseAddrPort(first.LocalAddr().String()).Port() {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the flow that was always in use was opened %d times", asked)
	}
}

// L5: echo requests are answered by the gateway, by hosts that are allowed if this
// user may send any, and refused ones are reported.
func TestPing(t *testing.T) {
	testenv.Need(t, "ping")
	onLinks(t, func(t *testing.T, kind string) {
		gate := &testGate{refuse: func(_ string, dst netip.AddrPort) *testRefusal {
			if dst.Addr() == far4 || dst.Addr() == far6 {
				return &testRefusal{}
			}
			return nil
		}}
		s := newSandbox(t, kind, gate)
		for _, size := range []string{"0", "56", "1472", "60000"} {
			for _, a := range []netip.Addr{gateway4, gateway6} {
				if out, err := s.ping(t, a, size); err != nil {
					t.Errorf("%v with %s bytes: %v\n%s", a, size, err, out)
				}
			}
		}
		for _, a := range []netip.Addr{far4, far6} {
			out, err := s.ping(t, a, "56")
			if err == nil || !bytes.Contains(out, []byte("filtered")) && !bytes.Contains(out, []byte("prohibited")) {
				t.Errorf("%v: %v\n%s", a, err, out)
			}
		}
		s.pingHost(t)
	})
}

// pingHost pings the host's loopback, which this gate allows.
func (s *sandbox) pingHost(t *testing.T) {
	t.Helper()
	p, err := openPinger(netip.MustParseAddr("127.0.0.1"))
	may := err == nil
	if may {
		p.file.Close()
	} else if os.Getuid() == 0 {
		t.Fatal(err)
	}
	// A loopback address does not leave the sandbox, but the host has others.
	for _, a := range hostAddrs(t) {
		out, err := s.ping(t, a, "56")
		if (err == nil) != may {
			t.Errorf("%v: this user may ping: %v, but: %v\n%s", a, may, err, out)
		}
	}
}

func hostAddrs(t *testing.T) []netip.Addr {
	t.Helper()
	found, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var addrs []netip.Addr
	for _, f := range found {
		a, _ := netip.AddrFromSlice(f.(*net.IPNet).IP)
		if a = a.Unmap(); a.IsGlobalUnicast() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func (s *sandbox) ping(t *testing.T, a netip.Addr, size string) ([]byte, error) {
	t.Helper()
	cmd := s.command(t, "ping", "-n", "-c1", "-W5", "-s", size, a.String())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out, err
}
