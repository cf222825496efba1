package network

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// carried listens at a name and carries what connects there to the same name with
// "-host" behind it, and returns the records of the connections.
func carried(t *testing.T) (dial func() *net.UnixConn, host string, s *abstractSocket, records func() []plan.Connection) {
	t.Helper()
	name := fmt.Sprintf("cloche-%s-%d", t.Name(), os.Getpid())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@" + name})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []plan.Connection
	host = name + "-host"
	s = carryAbstract(l, host, func(c plan.Connection) { mu.Lock(); defer mu.Unlock(); told = append(told, c) })
	t.Cleanup(func() { _ = s.Close() })
	dial = func() *net.UnixConn {
		t.Helper()
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	return dial, host, s, func() []plan.Connection { mu.Lock(); defer mu.Unlock(); return slices.Clone(told) }
}

// hostServer serves each client of an abstract name with f.
func hostServer(t *testing.T, name string, f func(*net.UnixConn)) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
}

// C2: bytes, half-closed connections and descriptors are carried both ways, and
// this process keeps none of the descriptors.
func TestCarryAbstract(t *testing.T) {
	dial, host, s, records := carried(t)
	hostServer(t, host, func(c *net.UnixConn) { // sends back what it gets, descriptors included
		data, control := make([]byte, 64), make([]byte, 256)
		n, passed, _, _, err := c.ReadMsgUnix(data, control)
		if err != nil {
			return
		}
		fds, _ := descriptors(control[:passed])
		rest, _ := io.ReadAll(c)
		_ = sendUnix(c, append(data[:n], rest...), fds)
		for _, fd := range fds {
			syscall.Close(fd)
		}
	})
	before := openFiles(t)
	const text = 200_000
	for range 20 {
		c := dial()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if !sendUnix(c, []byte(strings.Repeat("x", text)), []int{int(w.Fd()), int(r.Fd())}) {
			t.Fatal("cannot send")
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		data, control := make([]byte, 64), make([]byte, 256)
		n, passed, _, _, err := c.ReadMsgUnix(data, control)
		if err != nil {
			t.Fatal(err)
		}
		fds, _ := descriptors(control[:passed])
		rest, err := io.ReadAll(c)
		if err != nil || n+len(rest) != text || len(fds) != 2 {
			t.Fatalf("came back: %d bytes, %d descriptors, %v", n+len(rest), len(fds), err)
		}
		if _, err := syscall.Write(fds[0], []byte("y")); err != nil {
			t.Error(err)
		}
		if n, err := r.Read(data); n != 1 || err != nil {
			t.Errorf("the descriptor is another one: %v", err)
		}
		for _, fd := range fds {
			syscall.Close(fd)
		}
		r.Close()
		w.Close()
		c.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	told := records()
	if len(told) != 20 {
		t.Fatalf("%d connections were reported", len(told))
	}
	if c := told[0]; c.Sent != text || c.Received != text || !c.Allowed || c.Protocol != "unix" || c.Name != "@"+host || c.Error != "" {
		t.Errorf("told: %+v", c)
	}
	if !testenv.Becomes(func() bool { return openFiles(t) <= before }) {
		t.Fatalf("%d descriptors, %d before", openFiles(t), before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// C2: where nobody listens outside the connection ends, and the record says why.
func TestCarryAbstractToNobody(t *testing.T) {
	dial, _, s, records := carried(t)
	if n, err := dial().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	_ = s.Close()
	if told := records(); len(told) != 1 || !strings.Contains(told[0].Error, "refused") {
		t.Errorf("told: %+v", told)
	}
}

// C2: when the sandbox ends, so does every connection, also those that wait.
func TestCarryAbstractCloses(t *testing.T) {
	dial, host, s, records := carried(t)
	var served sync.WaitGroup
	served.Add(maxCarried)
	hostServer(t, host, func(c *net.UnixConn) { served.Done(); _, _ = io.Copy(io.Discard, c) })
	var conns []*net.UnixConn
	for range maxCarried + 10 {
		conns = append(conns, dial())
	}
	served.Wait() // and no more, or the counter would fail
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range conns {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("a connection outlives the sandbox: %d bytes, %v", n, err)
		}
	}
	if n := len(records()); n < maxCarried {
		t.Errorf("%d connections were reported", n)
	}
}
