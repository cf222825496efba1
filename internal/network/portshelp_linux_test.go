package network

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// A sandboxNet stands for the network of a sandbox: a namespace of its own with
// its loopback up.
type sandboxNet struct {
	*netns.Namespace
	pid  int
	file *os.File
}

func newSandboxNet(t testing.TB) *sandboxNet {
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
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		runtime.UnlockOSThread()
	})
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	n, err := netns.Open(f)
	must(t, err)
	t.Cleanup(func() { n.Close() })
	must(t, n.LoopbackUp())
	return &sandboxNet{Namespace: n, pid: cmd.Process.Pid, file: f}
}

// command is one that runs inside.
func (s *sandboxNet) command(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	testenv.Need(t, "nsenter", argv[0])
	return exec.Command("nsenter", append([]string{"-t", fmt.Sprint(s.pid), "-U", "-n", "--preserve-credentials", "--"}, argv...)...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// records collects connections.
type records struct {
	mu   sync.Mutex
	list []plan.Connection
}

func (r *records) add(c plan.Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, c)
}

func (r *records) all() []plan.Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// serve starts the ports of a plan and closes them at the end.
func serve(t testing.TB, s *sandboxNet, n plan.Network) (*Ports, *records) {
	t.Helper()
	p, err := Bind(&n)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	r := &records{}
	must(t, p.Serve(s, r.add))
	return p, r
}

// echoServer sends back what it gets, until the end of the input.
func echoServer(t testing.TB, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
}

func echoDatagrams(t testing.TB, c *net.UDPConn) {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
}

// exchange sends a message, ends its side, and returns all that comes back.
func exchange(t testing.TB, c *net.TCPConn, message string) string {
	t.Helper()
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err := io.WriteString(c, message)
	must(t, err)
	must(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	must(t, err)
	return string(got)
}

func dialPort(t testing.TB, port int) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), testenv.Patience)
	must(t, err)
	return c.(*net.TCPConn)
}

// hostListener is a listener of the test on the host, and its port.
func hostListener(t testing.TB, address string) (*net.TCPListener, int) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	return l.(*net.TCPListener), l.Addr().(*net.TCPAddr).Port
}
