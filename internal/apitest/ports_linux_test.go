package apitest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testlog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// insideServer is a script that answers one connection to port 8080 inside.
const insideServer = `exec python3 -c "
import socket
s = socket.create_server(('127.0.0.1', 8080))
s.settimeout(20)
s.accept()[0].sendall(b'inside\n')"`

// freePort is a port of the host's loopback that is free, and that the test has
// for itself: it is below those that the kernel gives to whoever asks for any, and
// no other test takes it meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.N(12000)
		mine, err := net.Listen("unix", fmt.Sprintf("@cloche-test-port-%d", port))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			t.Cleanup(func() { mine.Close() })
			return port
		}
		mine.Close()
	}
	t.Fatal("no port is free")
	return 0
}

// readFrom connects to a port of the host until its server says something.
func readFrom(port int) string {
	var text []byte
	testenv.Becomes(func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		text, _ = io.ReadAll(c)
		return len(text) > 0
	})
	return string(text)
}

// becomesFree waits until a port is free: the end of a command that somebody
// else started is noticed a little later.
func becomesFree(port int) bool {
	return testenv.Becomes(func() bool {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
		}
		return err == nil
	})
}

// L5: the host reaches a server inside by the port that is published, in every
// kind of sandbox; afterwards the port is free again.
func TestPublishedPort(t *testing.T) {
	testenv.Need(t, "python3")
	port := freePort(t)
	eachNetworked(t, func(t *testing.T, n *networked) {
		said := make(chan string, 1)
		go func() { said <- readFrom(port) }()
		out, r := n.run(t, insideServer)
		if text := <-said; text != "inside\n" {
			t.Errorf("the server said %q; the command said %q", text, out)
		}
		if r != nil && !slices.ContainsFunc(r.Connections, func(c plan.Connection) bool {
			return c.Direction == "publish" && c.Port == 8080 && c.Sent == 7 && c.Allowed && c.Rule == "network.publish" && c.Error == ""
		}) {
			t.Errorf("connections are %+v", r.Connections)
		}
		n.session.Close()
		if !becomesFree(port) {
			t.Error("the port is still taken")
		}
	}, policy.Set("network.publish", fmt.Sprintf("%d:8080", port)))
}

// L5: a port below 1024 inside can be published: the command may listen on it, whoever
// runs it, in every kind of sandbox. Where none is published it needs a privilege, as ever.
func TestPublishedLowPort(t *testing.T) {
	testenv.Need(t, "python3")
	testenv.AlsoAsUser(t)
	port := freePort(t)
	eachNetworked(t, func(t *testing.T, n *networked) {
		said := make(chan string, 1)
		go func() { said <- readFrom(port) }()
		out, _ := n.run(t, strings.ReplaceAll(insideServer, "8080", "80"))
		if text := <-said; text != "inside\n" {
			t.Errorf("the server said %q; the command said %q", text, out)
		}
		n.session.Close()
		if !becomesFree(port) { // for the next kind of sandbox
			t.Error("the port is still taken")
		}
	}, policy.Set("network.publish", fmt.Sprintf("%d:80", port)))
	eachNetworked(t, func(t *testing.T, n *networked) {
		if out, _ := n.run(t, strings.ReplaceAll(insideServer, "8080", "80")); !strings.Contains(out, "Permission denied") {
			t.Errorf("nothing is published, and the command said %q", out)
		}
		n.session.Close()
		if !becomesFree(port) {
			t.Error("the port is still taken")
		}
	}, policy.Set("network.publish", fmt.Sprintf("%d:8080", port)))
}

// L5: a connection whose other end stays open ends with the command, and is in its
// result, also where the network goes on for other commands.
func TestPublishedStillOpen(t *testing.T) {
	testenv.Need(t, "python3")
	port := freePort(t)
	eachNetworked(t, func(t *testing.T, n *networked) {
		lasting := make(chan net.Conn, 1)
		go func() { lasting <- keepOpen(port) }()
		// The server ends by itself once it has answered; the client does not.
		out, r := n.run(t, insideServer)
		c := <-lasting
		if c == nil {
			t.Fatalf("nobody answered; the command said %q", out)
		}
		defer c.Close()
		if r != nil && !slices.ContainsFunc(r.Connections, func(c plan.Connection) bool {
			return c.Direction == "publish" && c.Port == 8080 && c.Sent == 7 && c.Error == ""
		}) {
			t.Errorf("connections are %+v", r.Connections)
		}
		n.session.Close()
		if !becomesFree(port) {
			t.Error("the port is still taken")
		}
	}, policy.Set("network.publish", fmt.Sprintf("%d:8080", port)))
}

// keepOpen is a connection to a server that has answered on it, or nil.
func keepOpen(port int) (open net.Conn) {
	testenv.Becomes(func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		if _, err := io.ReadFull(c, make([]byte, len("inside\n"))); err != nil {
			c.Close()
			return false
		}
		open = c
		return true
	})
	return open
}

// L5: where the policy leaves the choice, the port that was taken is known before
// the command runs, and in the result.
func TestPublishAnyPort(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "python3")
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.Set("network.publish", "0:8080")), dir)
	c := s.Command(t.Context(), "sh", "-c", insideServer)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ports := c.Published()
	if len(ports) != 1 || ports[0].Host == 0 || ports[0].Inside != 8080 || ports[0].Address != "127.0.0.1" {
		t.Fatalf("published are %+v", ports)
	}
	if text := readFrom(ports[0].Host); text != "inside\n" {
		t.Errorf("the server said %q", text)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	want := fmt.Sprintf("port %d of 127.0.0.1", ports[0].Host)
	if !slices.ContainsFunc(c.Result().Notices, func(n plan.Notice) bool {
		return n.Kind == plan.NoticePublished && strings.Contains(n.Text, want)
	}) {
		t.Errorf("notices are %+v", c.Result().Notices)
	}
}

// L5: a port that is in use is an error, and nothing runs.
func TestPublishTakenPort(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for name, opts := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			s := open(t, policy.Workspace(dir).With(policy.Set("network.publish", fmt.Sprintf("%d:80", taken))), dir, opts...)
			err := s.Command(t.Context(), "touch", "ran").Run()
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d is in use on the host", taken)) {
				t.Errorf("the error is %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

// N3: each connection is a line of the log, between the start and the end of its
// run, with who made it.
func TestConnectionsAreAudited(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "curl")
	port := webServer(t)
	dir := workspace(t)
	var log testlog.Memory
	s := open(t, policy.Workspace(dir).With(policy.Set("network.forward", fmt.Sprint(port))), dir, cloche.WithAudit(&log))
	r := capture(t, s, fmt.Sprintf("curl -sS -m 20 http://127.0.0.1:%d/", port))
	if string(r.Stdout) != "hello\n" {
		t.Fatalf("said %q %q", r.Stdout, r.Stderr)
	}
	events := log.Events()
	if len(events) != 3 || events[0].Kind != audit.Start || events[1].Kind != audit.Connected || events[2].Kind != audit.End {
		t.Fatalf("events are %+v", events)
	}
	e := events[1]
	c := e.Connection
	if e.Run != events[0].Run || e.Verdict != runlog.Allow || e.Rule != "network.forward" || !e.Confined || e.Workspace != dir {
		t.Errorf("the event is %+v", e)
	}
	if c.Direction != "forward" || c.Protocol != "tcp" || c.Address != "127.0.0.1" || c.Port != port || c.Sent == 0 || c.Received == 0 {
		t.Errorf("the connection is %+v", c)
	}
	if c.PID == 0 || !strings.HasSuffix(c.Program, "curl") {
		t.Errorf("it was made by %d, %q", c.PID, c.Program)
	}
}

// L5: a kept sandbox that has to be made anew takes the same ports again, also while
// a command still runs in the old one; new connections come to the new one.
func TestPublishWarmAnew(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "python3")
	port := freePort(t)
	dir := workspace(t)
	secret := filepath.Join(dir, "secret")
	replaceFile(t, secret)
	p := policy.Workspace(dir).With(policy.HidePaths(secret), policy.Set("network.publish", fmt.Sprintf("%d:8080", port)))
	s := open(t, p, dir, cloche.WithWarm())
	for range 2 {
		c := serveInside(t, s, port)
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		replaceFile(t, secret) // the sandbox hides the old one, so it cannot be used again
	}
	old := s.Command(t.Context(), "sleep", "60")
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, secret)
	if err := serveInside(t, s, port).Wait(); err != nil {
		t.Error(err)
	}
	if err := old.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = old.Wait()
}

// serveInside starts a server and reads from it by its published port.
func serveInside(t *testing.T, s *cloche.Session, port int) *cloche.Cmd {
	t.Helper()
	c := s.Command(t.Context(), "sh", "-c", insideServer)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if text := readFrom(port); text != "inside\n" {
		t.Errorf("the server said %q", text)
	}
	return c
}

// replaceFile puts a new file in the place of the old one.
func replaceFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
