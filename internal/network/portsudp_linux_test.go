package network

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

func udpPortRule(host, inside int) plan.Port {
	return plan.Port{Host: host, Inside: inside, Protocol: "udp"}
}

// ask sends a datagram until it is answered: an answer may be lost.
func ask(t testing.TB, c net.Conn, message []byte) {
	t.Helper()
	buf := make([]byte, maxDatagram)
	for range 60 {
		_, err := c.Write(message)
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(2*time.Second)))
		if n, err := c.Read(buf); err == nil && bytes.Equal(buf[:n], message) {
			return
		}
	}
	t.Errorf("no answer to %d bytes", len(message))
}

// L5: datagrams of all sizes cross both ways, whichever loopback the server is
// on, and each client's answers come back to it.
func TestPublishUDP(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			s := newSandboxNet(t)
			server, err := s.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(address), 5353))
			must(t, err)
			echoDatagrams(t, server)
			p, r := serve(t, s, plan.Network{Publish: []plan.Port{udpPortRule(0, 5353)}})
			for i := range 3 {
				c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", p.Published()[0].Host))
				must(t, err)
				ask(t, c, []byte("first"))
				ask(t, c, bytes.Repeat([]byte{byte(i)}, 60000))
				ask(t, c, nil)
				c.Close()
			}
			p.Close()
			all := r.all()
			if len(all) != 3 {
				t.Fatalf("recorded %+v", all)
			}
			for _, c := range all {
				if c.Sent < 60005 || c.Received < c.Sent || c.Protocol != "udp" || c.Port != 5353 || c.Direction != "publish" || c.Error != "" {
					t.Errorf("recorded %+v", c)
				}
			}
		})
	}
}

// L5: on a port of all addresses, the answer comes from the one that was called.
func TestPublishUDPEverywhere(t *testing.T) {
	for address, calls := range map[string][]string{"0.0.0.0": {"127.0.0.1", "127.0.0.2", "127.1.2.3"}, "::": {"127.0.0.2", "::1"}} {
		s := newSandboxNet(t)
		server, err := s.ListenUDP(netip.MustParseAddrPort("127.0.0.1:5353"))
		must(t, err)
		echoDatagrams(t, server)
		rule := udpPortRule(0, 5353)
		rule.Address = address
		p, _ := serve(t, s, plan.Network{Publish: []plan.Port{rule}})
		for _, call := range calls {
			c, err := net.Dial("udp", net.JoinHostPort(call, fmt.Sprint(p.Published()[0].Host)))
			must(t, err)
			ask(t, c, []byte(call))
			c.Close()
		}
	}
}

// L5: a command reaches one UDP port of the host.
func TestForwardUDP(t *testing.T) {
	for _, from := range []string{"127.0.0.1", "::1"} {
		t.Run(from, func(t *testing.T) {
			s := newSandboxNet(t)
			server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(t, err)
			echoDatagrams(t, server)
			port := server.LocalAddr().(*net.UDPAddr).Port
			p, r := serve(t, s, plan.Network{Forward: []plan.Port{udpPortRule(port, 5000)}})
			c, err := s.DialUDP(context.Background(), netip.AddrPortFrom(netip.MustParseAddr(from), 5000))
			must(t, err)
			ask(t, c, []byte("query"))
			c.Close()
			p.Close()
			all := r.all()
			if len(all) != 1 || all[0].Sent < 5 || all[0].Received < 5 || all[0].Direction != "forward" || all[0].Port != port {
				t.Errorf("recorded %+v", all)
			}
		})
	}
}

// L5: flows end when they are idle, and a flow of the same client begins anew.
func TestFlowsEndIdle(t *testing.T) {
	s := newSandboxNet(t)
	server, err := s.ListenUDP(netip.MustParseAddrPort("127.0.0.1:5353"))
	must(t, err)
	echoDatagrams(t, server)
	n := plan.Network{Publish: []plan.Port{udpPortRule(0, 5353)}}
	p, err := Bind(&n)
	must(t, err)
	defer p.Close()
	p.idle = 100 * time.Millisecond
	r := &records{}
	must(t, p.Serve(s, r.add))
	c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", p.Published()[0].Host))
	must(t, err)
	defer c.Close()
	for i := 1; i <= 2; i++ {
		ask(t, c, []byte("x"))
		testenv.Eventually(t, fmt.Sprintf("flow %d ends", i), func() bool { return len(r.all()) >= i })
	}
}

// L5: a client that uses ever new ports ends its own oldest flows.
func TestFlowsAreBounded(t *testing.T) {
	s := newSandboxNet(t)
	server, err := s.ListenUDP(netip.MustParseAddrPort("127.0.0.1:5353"))
	must(t, err)
	echoDatagrams(t, server)
	p, r := serve(t, s, plan.Network{Publish: []plan.Port{udpPortRule(0, 5353)}})
	for range maxFlows + 20 {
		c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", p.Published()[0].Host))
		must(t, err)
		defer c.Close() // later: its port would be used again
		ask(t, c, []byte("x"))
	}
	p.mu.Lock()
	open := len(p.open)
	p.mu.Unlock()
	if open > maxFlows+2 {
		t.Errorf("%d sockets are open", open)
	}
	p.Close()
	if n := len(r.all()); n < maxFlows+20 {
		t.Errorf("%d records", n)
	}
}

// L5: nobody listens: the flow says so and ends.
func TestUDPRefused(t *testing.T) {
	s := newSandboxNet(t)
	p, r := serve(t, s, plan.Network{Publish: []plan.Port{udpPortRule(0, 5353)}})
	c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", p.Published()[0].Host))
	must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	must(t, err)
	testenv.Eventually(t, "the flow ends", func() bool { return len(r.all()) > 0 })
	if got := r.all()[0]; !strings.Contains(got.Error, "connection refused") || got.Sent != 0 {
		t.Errorf("recorded %+v", got)
	}
}
