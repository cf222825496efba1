package usernet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// Addresses inside.
var (
	inside4  = netip.MustParseAddr("198.18.0.2")
	inside6  = netip.MustParseAddr("fd63:6c6f:6368::2")
	gateway4 = netip.MustParseAddr("198.18.0.1")
	gateway6 = netip.MustParseAddr("fd63:6c6f:6368::1")
	// far4 and far6 are somewhere in the world: the test's gate decides where.
	far4 = netip.MustParseAddr("203.0.113.7")
	far6 = netip.MustParseAddr("2001:db8::7")
)

func far(v6 bool) netip.Addr {
	if v6 {
		return far6
	}
	return far4
}

// A testGate sends everything to the loopback, and refuses what the test names.
type testGate struct {
	refuse  func(network string, dst netip.AddrPort) *testRefusal
	opened  atomic.Int32
	mu      sync.Mutex
	clients []netip.AddrPort
}

type testRefusal struct {
	err    error
	answer string
}

func (r *testRefusal) Answers() bool { return r.answer != "" }
func (r *testRefusal) Err() error    { return r.err }
func (r *testRefusal) Close() error  { return nil }
func (r *testRefusal) Serve(c net.Conn) {
	_, _ = c.Write([]byte(r.answer))
	c.Close()
}

func (g *testGate) judge(network string, client, dst netip.AddrPort) *testRefusal {
	g.mu.Lock()
	g.clients = append(g.clients, client)
	g.mu.Unlock()
	if g.refuse == nil {
		return nil
	}
	return g.refuse(network, dst)
}

// asked returns who asked.
func (g *testGate) asked() []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.clients)
}

func (g *testGate) OpenTCP(ctx context.Context, client, dst netip.AddrPort) (Flow, Refusal) {
	if r := g.judge("tcp", client, dst); r != nil {
		return nil, r
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", loopback(dst))
	if err != nil {
		return nil, &testRefusal{err: err}
	}
	g.opened.Add(1)
	return &testFlow{c.(*net.TCPConn)}, nil
}

func (g *testGate) OpenUDP(ctx context.Context, client, dst netip.AddrPort) (net.Conn, Refusal) {
	if r := g.judge("udp", client, dst); r != nil {
		return nil, r
	}
	c, err := new(net.Dialer).DialContext(ctx, "udp", loopback(dst))
	if err != nil {
		return nil, &testRefusal{err: err}
	}
	g.opened.Add(1)
	return c, nil
}

func (g *testGate) Ping(_ context.Context, client, dst netip.Addr) Refusal {
	if r := g.judge("icmp", netip.AddrPortFrom(client, 0), netip.AddrPortFrom(dst, 0)); r != nil {
		return r
	}
	return nil
}

// loopback is where the test's servers for an address are.
func loopback(dst netip.AddrPort) string {
	if dst.Addr().Is6() {
		return fmt.Sprintf("[::1]:%d", dst.Port())
	}
	return fmt.Sprintf("127.0.0.1:%d", dst.Port())
}

// A testFlow relays as simply as is right.
type testFlow struct{ *net.TCPConn }

func (f *testFlow) Relay(client net.Conn) {
	c := client.(interface {
		net.Conn
		CloseWrite() error
		SetLinger(int) error
	})
	var both sync.WaitGroup
	both.Go(func() { carry(f.TCPConn, c) })
	both.Go(func() { carry(c, f.TCPConn) })
	both.Wait()
	c.Close()
	f.Close()
}

type end interface {
	net.Conn
	CloseWrite() error
	SetLinger(int) error
}

// carry copies one way, and passes on how it ended: with an end, or with a reset.
func carry(to, from end) {
	var err error
	if w, ok := from.(*conn); ok {
		_, err = w.WriteTo(to)
	} else {
		_, err = to.(*conn).ReadFrom(from)
	}
	if err == nil && to.CloseWrite() == nil {
		return
	}
	_ = to.SetLinger(0)
	to.Close()
	_ = from.SetLinger(0)
	from.Close()
}

// A sandbox is a namespace whose network is a stack.
type sandbox struct {
	*netns.Namespace
	*Stack
	pid int
}

// newSandbox makes a sandbox with a link of the kind, and ends it with the
// test, after which nothing must be left.
func newSandbox(t testing.TB, kind string, gate *testGate) *sandbox {
	t.Helper()
	s := &sandbox{}
	s.Namespace, s.pid = newNamespace(t)
	s.Stack = startStack(t, s.Namespace, kind, gate)
	return s
}

func startStack(t testing.TB, n *netns.Namespace, kind string, gate *testGate) *Stack {
	t.Helper()
	config := netns.LinkConfig{
		Name: "cloche0", MTU: 65520, VNetHeader: kind == "tun",
		Addresses: []netip.Prefix{netip.PrefixFrom(inside4, 15), netip.PrefixFrom(inside6, 64)},
		Gateways:  []netip.Addr{gateway4, gateway6},
	}
	link := policy.LinkTUN
	if kind == "veth" {
		link = policy.LinkVeth
	}
	l, err := n.MakeLink(link, config)
	if err != nil {
		t.Fatal(err)
	}
	leaks := goleak.IgnoreCurrent()
	s, err := Start(Link{
		File: l.File, MTU: l.MTU, Ethernet: l.Ethernet, MAC: l.Gateway[:], Peer: l.MAC[:],
		Addrs: []netip.Addr{inside4, inside6}, Gateways: []netip.Addr{gateway4, gateway6},
	}, gate, func(text string) { t.Log("notice:", text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := goleak.Find(leaks); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newNamespace makes a network namespace that belongs to a new user namespace, in
// which this user is root and programs may be hostile.
func newNamespace(t testing.TB) (*netns.Namespace, int) {
	t.Helper()
	testenv.Need(t, "userns", "sleep")
	cmd := exec.Command("sleep", "1000")
	id := func(n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: n, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()), Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // the death signal is the thread's
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		runtime.UnlockOSThread()
	})
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := netns.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, cmd.Process.Pid
}

// command is a command that runs inside.
func (s *sandbox) command(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	testenv.Need(t, "nsenter", argv[0])
	args := []string{"-t", fmt.Sprint(s.pid), "-U", "-n", "--preserve-credentials", "--"}
	return exec.Command("nsenter", append(args, argv...)...)
}

// onLinks runs a test on each kind of link that this user can make. As root the
// test of tun cannot be skipped.
func onLinks(t *testing.T, test func(t *testing.T, kind string)) {
	t.Helper()
	t.Run("veth", func(t *testing.T) { test(t, "veth") })
	t.Run("tun", func(t *testing.T) {
		f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
		if err != nil {
			if os.Getuid() == 0 {
				t.Fatal(err)
			}
			t.Skipf("needs /dev/net/tun: %v", err)
		}
		f.Close()
		test(t, "tun")
	})
}

// listen starts a TCP server on the loopback of the host.
func listen(t testing.TB, v6 bool, serve func(net.Conn)) uint16 {
	t.Helper()
	address := "127.0.0.1:0"
	if v6 {
		address = "[::1]:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func (s *sandbox) dial(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := s.tryDial(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (s *sandbox) tryDial(to netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	c, err := s.DialTCP(ctx, to)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return c, err
}
