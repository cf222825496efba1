package netns

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// An inside is a process in namespaces of its own, as a sandbox has them.
type inside struct {
	*Namespace
	pid int
}

// newInside makes a network namespace that belongs to a new user namespace, with
// nothing set up in it.
func newInside(t testing.TB) *inside {
	t.Helper()
	testenv.Need(t, "userns", "sleep")
	cmd := exec.Command("sleep", "1000")
	id := func(n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: n, HostID: n, Size: 1}}
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
	return &inside{Namespace: openNamespace(t, cmd.Process.Pid), pid: cmd.Process.Pid}
}

func openNamespace(t testing.TB, pid int) *Namespace {
	t.Helper()
	f, err := os.Open(proc(pid, "ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// run runs a command inside.
func (in *inside) run(t testing.TB, argv ...string) string {
	t.Helper()
	cmd := in.command(t, argv...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

func (in *inside) command(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	testenv.Need(t, "nsenter", argv[0])
	args := []string{"-t", fmt.Sprint(in.pid), "-U", "-n", "--preserve-credentials", "--"}
	return exec.Command("nsenter", append(args, argv...)...)
}

func descriptors(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var links []string
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.HasPrefix(link, "socket:") {
			links = append(links, link)
		}
	}
	return links
}

var testConfig = LinkConfig{
	Name: "cloche0", MTU: 65520,
	Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/15"), netip.MustParsePrefix("fd63:6c6f:6368::2/64")},
	Gateways:  []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("fd63:6c6f:6368::1")},
}

// C3, L5: sockets made inside reach each other there, over both families, and
// nothing is left open afterwards.
func TestSockets(t *testing.T) {
	in := newInside(t)
	if err := in.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for _, address := range []string{"127.0.0.1", "::1", "0.0.0.0", "::"} {
		t.Run(address, func(t *testing.T) {
			echoTCP(t, in.Namespace, address)
			echoUDP(t, in.Namespace, address)
		})
	}
	if after := descriptors(t); !slices.Equal(after, before) {
		t.Errorf("sockets before %v, after %v", before, after)
	}
}

func loopbackOf(address string) netip.Addr {
	if strings.Contains(address, ":") {
		return netip.IPv6Loopback()
	}
	return netip.MustParseAddr("127.0.0.1")
}

func echoTCP(t *testing.T, n *Namespace, address string) {
	t.Helper()
	l, err := n.ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(address), 53)) // a privileged port
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := n.DialTCP(t.Context(), netip.AddrPortFrom(loopbackOf(address), 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
		t.Errorf("echo is %q, %v", got, err)
	}
	if outside, err := net.Dial("tcp", netip.AddrPortFrom(loopbackOf(address), 53).String()); err == nil {
		if outside.RemoteAddr().String() == l.Addr().String() && outside.LocalAddr() == c.LocalAddr() {
			t.Error("the listener can be reached from outside")
		}
		outside.Close()
	}
}

func echoUDP(t *testing.T, n *Namespace, address string) {
	t.Helper()
	l, err := n.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(address), 53))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		var b [64]byte
		if size, from, err := l.ReadFrom(b[:]); err == nil {
			_, _ = l.WriteTo(b[:size], from)
		}
	}()
	c, err := n.DialUDP(t.Context(), netip.AddrPortFrom(loopbackOf(address), 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
	var b [64]byte
	if size, err := c.Read(b[:]); string(b[:size]) != "hello" || err != nil {
		t.Errorf("echo is %q, %v", b[:size], err)
	}
}

// C2: an abstract socket that is made inside is there and not outside.
func TestAbstract(t *testing.T) {
	in := newInside(t)
	name := fmt.Sprintf("cloche-test-%d", os.Getpid())
	l, err := in.ListenUnix(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := net.Dial("unix", "@"+name); err == nil {
		c.Close()
		t.Error("it can be reached from outside")
	}
	if table := in.run(t, "cat", "/proc/net/unix"); !strings.Contains(table, "@"+name) {
		t.Errorf("it is not inside:\n%s", table)
	}
	if _, err := in.ListenUnix(name); err == nil {
		t.Error("it could be made twice")
	}
}

// A connection to a port where nobody listens, one that takes too long, and a
// namespace that was closed: each is an error that says so.
func TestDialErrors(t *testing.T) {
	in := newInside(t)
	target := netip.MustParseAddrPort("127.0.0.1:9")
	if _, err := in.DialTCP(t.Context(), target); err == nil || !strings.Contains(err.Error(), "127.0.0.1:9") {
		t.Errorf("with no loopback: %v", err)
	}
	if err := in.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.DialTCP(t.Context(), target); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
	link, err := in.makeLink(t)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := in.DialTCP(ctx, netip.MustParseAddrPort("203.0.113.1:9")); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("nobody answers: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := in.DialTCP(t.Context(), target); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("the namespace is closed: %v", err)
	}
}

// makeLink makes the best link that this user can.
func (in *inside) makeLink(t *testing.T) (*Link, error) {
	t.Helper()
	if l, err := in.MakeLink(policy.LinkTUN, testConfig); err == nil {
		return l, nil
	}
	return in.MakeLink(policy.LinkVeth, testConfig)
}

// A file that is no network namespace, and one that is our own.
func TestOpen(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := Open(null); err == nil {
		t.Error("the null device was opened as a namespace")
	}
	n := openNamespace(t, os.Getpid())
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &own); err != nil || n.Inode() != own.Ino {
		t.Errorf("inode %d, want %d: %v", n.Inode(), own.Ino, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err == nil {
		t.Error("it could be closed twice")
	}
}

func BenchmarkLink(b *testing.B) {
	for _, kind := range []policy.Link{policy.LinkTUN, policy.LinkVeth} {
		b.Run(kind.String(), func(b *testing.B) {
			var total time.Duration
			for range b.N {
				in := newInside(b)
				start := time.Now()
				l, err := in.MakeLink(kind, testConfig)
				total += time.Since(start)
				if err != nil {
					b.Skip(err)
				}
				l.Close()
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/link")
		})
	}
}

func BenchmarkListen(b *testing.B) {
	in := newInside(b)
	for range b.N {
		l, err := in.ListenTCP(netip.MustParseAddrPort("127.0.0.1:53"))
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}

// L5: an ordinary user can send echo requests inside, and the machine's own
// setting stays as it is.
func TestAllowPing(t *testing.T) {
	const file = "/proc/sys/net/ipv4/ping_group_range"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := newInside(t)
	in.Prepare(Needs{Ping: true})
	openNamespace(t, os.Getpid()).Prepare(Needs{Ping: true}) // which is not a sandbox's
	want := fmt.Sprintf("%d\t%d\n", os.Getgid(), os.Getgid())
	if got := in.run(t, "cat", file); got != want {
		t.Errorf("inside it is %q, want %q", got, want)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Errorf("outside it was %q and is %q", before, after)
	}
}

// L5: the probes answer as the links themselves do, and leave nothing.
func TestProbes(t *testing.T) {
	testenv.Need(t, "userns")
	in, before := newInside(t), len(descriptors(t))
	_, tunErr := in.MakeLink(policy.LinkTUN, testConfig)
	if got := ProbeTUN(t.Context()); (got.Outcome == host.Yes) != (tunErr == nil) || got.Outcome == host.No && got.Fix == "" {
		t.Errorf("TUN: %+v, and making one: %v", got, tunErr)
	}
	_, vethErr := newInside(t).MakeLink(policy.LinkVeth, testConfig)
	if got := ProbeVeth(t.Context()); (got.Outcome == host.Yes) != (vethErr == nil) {
		t.Errorf("veth: %+v, and making one: %v", got, vethErr)
	}
	if after := len(descriptors(t)); after > before+1 { // the packet socket of the second
		t.Errorf("%d sockets before, %d after", before, after)
	}
	for _, err := range []error{unix.ENOENT, unix.EACCES} {
		if p := refusedTUN(err); p.Outcome != host.No || p.Fix == "" {
			t.Errorf("%v: %+v", err, p)
		}
	}
	if p := refusedTUN(unix.ENOMEM); p.Outcome != host.Unknown {
		t.Errorf("out of memory: %+v", p)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if p := ProbeVeth(ended); p.Outcome != host.Unknown {
		t.Errorf("with no time: %+v", p)
	}
}

// L5: what was prepared is what is used, and what was not used is closed.
func TestPrepare(t *testing.T) {
	in := newInside(t)
	before := descriptors(t)
	in.Prepare(Needs{Link: policy.LinkVeth, TCP: 2, UDP: 1, Owners: true})
	if n := len(descriptors(t)) - len(before); n != 6 {
		t.Errorf("%d sockets were prepared, want 6", n)
	}
	l, err := in.MakeLink(policy.LinkVeth, testConfig)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // one more than was prepared
		tcp, err := in.ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		if tcp.Addr().(*net.TCPAddr).Port == 0 {
			t.Error("it does not listen")
		}
	}
	l.Close()
	left := 0
	for _, fds := range in.ready.fds {
		left += len(fds)
	}
	if len(in.ready.fds[inetRequest(unix.AF_INET, unix.SOCK_DGRAM)]) != 1 || left != 2 {
		t.Errorf("left are %+v", in.ready.fds)
	}
	in.Close()
	if n := len(descriptors(t)) - len(before); n != 3 {
		t.Errorf("%d sockets are left, want the 3 listeners", n)
	}
}
