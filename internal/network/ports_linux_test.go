package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

var modes = []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback, policy.NetworkUser}

// L5: the host reaches a server inside, on either loopback, in every mode that
// has a network of its own; half-closed connections go on.
func TestPublish(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1", "0.0.0.0"} {
		for _, mode := range modes {
			t.Run(address+" "+mode.String(), func(t *testing.T) {
				s := newSandboxNet(t)
				l, err := s.ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(address), 8080))
				must(t, err)
				echoServer(t, l)
				p, r := serve(t, s, plan.Network{Mode: mode, Publish: []plan.Port{{Address: "127.0.0.1", Inside: 8080}}})
				port := p.Published()[0]
				if port.Host == 0 || port.Inside != 8080 || port.Address != "127.0.0.1" {
					t.Fatalf("published as %+v", port)
				}
				if got := exchange(t, dialPort(t, port.Host), "hello"); got != "hello" {
					t.Errorf("got %q", got)
				}
				p.Close()
				checkRecord(t, r, plan.Connection{
					Protocol: "tcp", Addr: netip.MustParseAddr("127.0.0.1"), Port: 8080, Sent: 5, Received: 5,
					Allowed: true, Rule: "network.publish", Subject: port.String(), Direction: "publish",
				})
			})
		}
	}
}

// checkRecord compares the only record with what is wanted, times apart.
func checkRecord(t testing.TB, r *records, want plan.Connection) {
	t.Helper()
	all := r.all()
	if len(all) != 1 {
		t.Fatalf("%d records: %+v", len(all), all)
	}
	got := all[0]
	if got.Start.IsZero() || got.Duration <= 0 {
		t.Errorf("no times: %+v", got)
	}
	want.Start, want.Duration = got.Start, got.Duration
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded\n%+v, want\n%+v", got, want)
	}
}

// L5: a command reaches one port of the host's loopback, by both of its own
// loopbacks, and no other.
func TestForward(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, from := range []string{"127.0.0.1", "::1"} {
			t.Run(from+" to "+listen, func(t *testing.T) {
				s := newSandboxNet(t)
				l, port := hostListener(t, listen)
				echoServer(t, l)
				other, closed := hostListener(t, "127.0.0.1:0")
				echoServer(t, other)
				p, r := serve(t, s, plan.Network{Forward: []plan.Port{{Host: port, Inside: 5432}}})
				c, err := s.DialTCP(context.Background(), netip.AddrPortFrom(netip.MustParseAddr(from), 5432))
				must(t, err)
				if got := exchange(t, c, "select"); got != "select" {
					t.Errorf("got %q", got)
				}
				for _, no := range []int{port, closed} {
					if c, err := s.DialTCP(context.Background(), netip.AddrPortFrom(netip.MustParseAddr(from), uint16(no))); err == nil {
						c.Close()
						t.Errorf("port %d of the host is reachable", no)
					}
				}
				p.Close()
				host, _, _ := net.SplitHostPort(listen)
				checkRecord(t, r, plan.Connection{
					Protocol: "tcp", Addr: netip.MustParseAddr(host), Port: port, Sent: 6, Received: 6,
					Allowed: true, Rule: "network.forward", Subject: plan.Port{Host: port, Inside: 5432}.String(), Direction: "forward",
				})
			})
		}
	}
}

// L5: many connections at once, more bytes than any buffer, both ways; all of
// them arrive and are counted.
func TestPortsCarryMuch(t *testing.T) {
	s := newSandboxNet(t)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(t, err)
	echoServer(t, l)
	p, r := serve(t, s, plan.Network{Publish: []plan.Port{{Inside: 80}}})
	const clients, size = 20, 1 << 20
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			data := make([]byte, size)
			rand.New(rand.NewSource(int64(i))).Read(data)
			c := dialPort(t, p.Published()[0].Host)
			defer c.Close()
			go func() {
				_, _ = c.Write(data)
				_ = c.CloseWrite()
			}()
			got := sha256.New()
			if _, err := io.Copy(got, c); err != nil {
				t.Error(err)
			}
			if want := sha256.Sum256(data); !bytes.Equal(got.Sum(nil), want[:]) {
				t.Errorf("client %d got other bytes", i)
			}
		})
	}
	all.Wait()
	p.Close()
	if n := len(r.all()); n != clients {
		t.Errorf("%d records", n)
	}
	for _, c := range r.all() {
		if c.Sent != size || c.Received != size || c.Error != "" {
			t.Errorf("recorded %+v", c)
		}
	}
}

// L5: a reset of one end is a reset of the other, and a server that is not there
// resets too; nothing hangs.
func TestPortsReset(t *testing.T) {
	s := newSandboxNet(t)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
			c.Close()
		}
	}()
	p, r := serve(t, s, plan.Network{Publish: []plan.Port{{Inside: 80}, {Inside: 81}}})
	for i, port := range p.Published() {
		if err := resetOf(port.Host); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("port %d: %v", i, err)
		}
	}
	p.Close()
	all := r.all()
	if len(all) != 2 {
		t.Fatalf("recorded %+v", all)
	}
	slices.SortFunc(all, func(a, b plan.Connection) int { return a.Port - b.Port })
	if all[1].Port != 81 || !strings.Contains(all[1].Error, "connection refused") || !all[1].Allowed {
		t.Errorf("recorded %+v", all[1])
	}
}

// resetOf connects and returns how the connection ended. The reset may come even
// before the connection was seen to be there.
func resetOf(port int) error {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), testenv.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// L5: Close ends connections that are open, records them, and gives the port back.
func TestPortsClose(t *testing.T) {
	s := newSandboxNet(t)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(t, err)
	echoServer(t, l)
	p, r := serve(t, s, plan.Network{Publish: []plan.Port{{Inside: 80}}, Forward: []plan.Port{{Host: 9, Inside: 9}}})
	port := p.Published()[0]
	c := dialPort(t, port.Host)
	defer c.Close()
	_, err = c.Write([]byte("abc"))
	must(t, err)
	_, err = io.ReadFull(c, make([]byte, 3))
	must(t, err)
	p.Close()
	must(t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if all := r.all(); len(all) != 1 || all[0].Sent != 3 || all[0].Received != 3 {
		t.Errorf("recorded %+v", all)
	}
	again, err := Bind(&plan.Network{Publish: []plan.Port{{Host: port.Host, Inside: 80}}})
	must(t, err)
	again.Close()
	if c, err := s.DialTCP(context.Background(), netip.MustParseAddrPort("127.0.0.1:9")); err == nil {
		c.Close()
		t.Error("the listener inside is still there")
	}
}

// L5: what a command has sent arrives, though it has ended and its connection was
// not even accepted; a client that stays does not hold up the end.
func TestPortsDrain(t *testing.T) {
	for range 20 {
		s := newSandboxNet(t)
		l, port := hostListener(t, "127.0.0.1:0")
		got := make(chan string, 2)
		go func() {
			c, err := l.Accept()
			if err != nil {
				got <- err.Error()
				return
			}
			text, _ := io.ReadAll(c)
			got <- string(text)
		}()
		datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		must(t, err)
		p, r := serve(t, s, plan.Network{Forward: []plan.Port{{Host: port, Inside: 80}, udpPortRule(datagrams.LocalAddr().(*net.UDPAddr).Port, 80)}})
		for _, protocol := range []string{"tcp", "udp"} {
			must(t, s.command(t, "bash", "-c", "echo bye >/dev/"+protocol+"/127.0.0.1/80").Run())
		}
		p.Close()
		l.Close()
		if text := <-got; text != "bye\n" {
			t.Errorf("the server got %q", text)
		}
		buf := make([]byte, 9)
		must(t, datagrams.SetReadDeadline(time.Now().Add(testenv.Patience)))
		if n, err := datagrams.Read(buf); err != nil || string(buf[:n]) != "bye\n" {
			t.Errorf("the server got %q, %v", buf[:n], err)
		}
		datagrams.Close()
		if all := r.all(); len(all) != 2 || all[0].Sent != 4 || all[1].Sent != 4 {
			t.Errorf("recorded %+v", all)
		}
	}
}

// L5: ports that are closed are free again at once, and what is open goes on.
func TestUnpublish(t *testing.T) {
	s := newSandboxNet(t)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(t, err)
	echoServer(t, l)
	p, _ := serve(t, s, plan.Network{Publish: []plan.Port{{Inside: 80}, udpPortRule(0, 53)}})
	port := p.Published()[0].Host
	c := dialPort(t, port)
	_, err = c.Write([]byte("a"))
	must(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	must(t, err)
	p.Unpublish()
	again, _ := serve(t, s, plan.Network{Publish: []plan.Port{{Host: port, Inside: 80}, udpPortRule(p.Published()[1].Host, 53)}})
	if got := exchange(t, c, "old"); got != "old" {
		t.Errorf("the old connection got %q", got)
	}
	if got := exchange(t, dialPort(t, again.Published()[0].Host), "new"); got != "new" {
		t.Errorf("a new connection got %q", got)
	}
}

// L5: ports that are not free are errors that say what to do.
func TestBindErrors(t *testing.T) {
	l, taken := hostListener(t, "127.0.0.1:0")
	defer l.Close()
	for name, c := range map[string]struct {
		network plan.Network
		want    string
	}{
		"in use": {plan.Network{Publish: []plan.Port{{Host: taken, Inside: 80}}},
			fmt.Sprintf("network.publish %d:80: port %d is in use on the host", taken, taken)},
		"no such address": {plan.Network{Publish: []plan.Port{{Address: "203.0.113.9", Host: 8080, Inside: 80}}}, "has no address 203.0.113.9"},
		"host":            {plan.Network{Mode: policy.NetworkHost, Forward: []plan.Port{{Host: 80, Inside: 80}}}, "network mode host"},
		"host publishes":  {plan.Network{Mode: policy.NetworkHost, Publish: []plan.Port{{Host: 80, Inside: 80}}}, "network mode host"},
	} {
		p, err := Bind(&c.network)
		if err == nil {
			p.Close()
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	low := &PortError{Rule: "network.publish", Port: plan.Port{Host: 80, Inside: 80}, Err: syscall.EACCES}
	if !strings.Contains(low.Error(), "--publish 10080:80") {
		t.Error(low)
	}
}

// L5: a port that is taken inside is an error that names the rule and another port.
// cloche answers names on port 53 of both protocols.
func TestForwardTakenInside(t *testing.T) {
	s := newSandboxNet(t)
	at := netip.MustParseAddrPort("127.0.0.1:53")
	tcp, err := s.ListenTCP(at)
	must(t, err)
	defer tcp.Close()
	udp, err := s.ListenUDP(at)
	must(t, err)
	defer udp.Close()
	for _, c := range []struct {
		rule plan.Port
		want string
	}{
		{plan.Port{Host: 53, Inside: 53, Protocol: "tcp"}, "network.forward 53: port 53 is taken inside by cloche itself or by another rule; choose another one inside: --forward 53:10053"},
		{udpPortRule(5300, 53), "network.forward 5300:53/udp: port 53 is taken inside by cloche itself or by another rule; choose another one inside: --forward 5300:10053/udp"},
	} {
		p, err := Bind(&plan.Network{Forward: []plan.Port{c.rule}})
		must(t, err)
		if err := p.Serve(s, nil); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.rule, err, c.want)
		}
		must(t, p.Close())
	}
}

// N3: a record names the process inside.
func TestPortsOwner(t *testing.T) {
	s := newSandboxNet(t)
	l, port := hostListener(t, "127.0.0.1:0")
	defer l.Close()
	p, r := serve(t, s, plan.Network{Forward: []plan.Port{{Host: port, Inside: 7000}}})
	cmd := s.command(t, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7000; read -n 1 -u 3; true")
	must(t, cmd.Start())
	c, err := l.Accept()
	must(t, err)
	_, err = c.Write([]byte("x"))
	must(t, err)
	must(t, cmd.Wait())
	c.Close()
	p.Close()
	if all := r.all(); len(all) != 1 || !strings.HasSuffix(all[0].Program, "/bash") || all[0].Pid != cmd.Process.Pid {
		t.Errorf("recorded %+v, want pid %d", all, cmd.Process.Pid)
	}
}

// BenchmarkPublish measures what a published port carries, one way.
func BenchmarkPublish(b *testing.B) {
	s := newSandboxNet(b)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(b, err)
	b.Cleanup(func() { l.Close() })
	chunk := make([]byte, 256<<10)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for {
			if _, err := c.Write(chunk); err != nil {
				c.Close()
				return
			}
		}
	}()
	p, _ := serve(b, s, plan.Network{Publish: []plan.Port{{Inside: 80}}})
	c := dialPort(b, p.Published()[0].Host)
	defer c.Close()
	b.SetBytes(int64(len(chunk)))
	buf := make([]byte, len(chunk))
	for b.Loop() {
		_, err := io.ReadFull(c, buf)
		must(b, err)
	}
}

// BenchmarkPublishConnect measures one connection after the other.
func BenchmarkPublishConnect(b *testing.B) {
	s := newSandboxNet(b)
	l, err := s.ListenTCP(netip.MustParseAddrPort("127.0.0.1:80"))
	must(b, err)
	echoServer(b, l)
	p, _ := serve(b, s, plan.Network{Publish: []plan.Port{{Inside: 80}}})
	for b.Loop() {
		if got := exchange(b, dialPort(b, p.Published()[0].Host), "x"); got != "x" {
			b.Fatal(got)
		}
	}
}
