package apitest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// A networked runs scripts in one kind of sandbox.
type networked struct {
	session *cloche.Session
	dir     string
	wrapped bool
}

// run returns what a script said, and its result unless it is wrapped.
func (n *networked) run(t *testing.T, script string) (string, *cloche.Result) {
	t.Helper()
	if n.wrapped {
		out, err := wrap(t, n.session, n.dir, script).CombinedOutput()
		if _, failed := err.(*exec.ExitError); err != nil && !failed {
			t.Fatal(err)
		}
		return string(out), nil
	}
	r := capture(t, n.session, script)
	return string(r.Stdout) + string(r.Stderr), r
}

// eachNetworked runs a test in every kind of sandbox whose network cloche serves,
// as the user that runs the test and as an ordinary one.
func eachNetworked(t *testing.T, test func(*testing.T, *networked), opts ...policy.Option) {
	testenv.AlsoAsUser(t)
	for _, k := range []struct {
		name, backend, need string
		wrapped             bool
		mode                []cloche.Option
	}{
		{name: "native", backend: "native", need: "userns"},
		{name: "bwrap", backend: "bwrap", need: "bwrap"},
		{name: "warm", backend: "native", need: "userns", mode: []cloche.Option{cloche.WithWarm()}},
		{name: "fast", backend: "native", need: "userns", mode: []cloche.Option{cloche.WithWarmFast()}},
		{name: "wrapped native", backend: "native", need: "userns", wrapped: true},
		{name: "wrapped bwrap", backend: "bwrap", need: "bwrap", wrapped: true},
	} {
		t.Run(k.name, func(t *testing.T) {
			testenv.Need(t, k.need)
			dir := workspace(t)
			p := policy.Workspace(dir).With(policy.WithBackend(k.backend)).With(opts...)
			if k.wrapped { // as root, bwrap does not seal the host's device nodes then
				p = p.With(policy.WithRequire(policy.BestEffort))
			}
			test(t, &networked{session: open(t, p, dir, k.mode...), dir: dir, wrapped: k.wrapped})
		})
	}
}

// webServer says "hello" on the host's loopback.
func webServer(t *testing.T) (port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// C3 L5: one port of the host's loopback can be reached where it was forwarded
// to, and no other; the namespace is handed over by every kind of sandbox.
func TestForwardedPort(t *testing.T) {
	testenv.Need(t, "curl")
	port, other := webServer(t), webServer(t)
	eachNetworked(t, func(t *testing.T, n *networked) {
		fetch := "curl -sS -m 20 http://127.0.0.1:%d/"
		out, r := n.run(t, fmt.Sprintf(fetch, port))
		if out != "hello\n" {
			t.Errorf("the forwarded port said %q", out)
		}
		if r != nil && (len(r.Connections) != 1 || r.Connections[0].Direction != "forward" || r.Connections[0].Port != port || r.Connections[0].Received == 0) {
			t.Errorf("connections are %+v", r.Connections)
		}
		out, r = n.run(t, fmt.Sprintf(fetch, other))
		if strings.Contains(out, "hello") || !strings.Contains(out, "(7)") {
			t.Errorf("another port of the host said %q", out)
		}
		if r != nil && len(r.Connections) != 0 {
			t.Errorf("connections are %+v", r.Connections)
		}
	}, policy.Set("network.forward", fmt.Sprint(port)))
}

// L5: a command that connects, sends and ends at once has done so: what it sent
// arrives, and the connection is in its result.
func TestForwardedLastWords(t *testing.T) {
	testenv.Need(t, "bash")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	port, got := l.Addr().(*net.TCPAddr).Port, make(chan string)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(c)
			c.Close()
			got <- string(text)
		}
	}()
	eachNetworked(t, func(t *testing.T, n *networked) {
		for range 5 {
			out, r := n.run(t, fmt.Sprintf("exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; echo hi >&3'", port))
			select {
			case text := <-got:
				if text != "hi\n" {
					t.Errorf("the server got %q", text)
				}
			case <-time.After(testenv.Patience):
				t.Fatalf("nothing arrived; the command said %q", out)
			}
			if r != nil && (len(r.Connections) != 1 || r.Connections[0].Sent != 3) {
				t.Errorf("connections are %+v", r.Connections)
			}
		}
	}, policy.Set("network.forward", fmt.Sprint(port)))
}

// L5: no descriptor of the network reaches the command.
func TestNetworkDescriptors(t *testing.T) {
	port := webServer(t)
	eachNetworked(t, func(t *testing.T, n *networked) {
		out, _ := n.run(t, "exec ls -l /proc/self/fd </dev/null 2>&1")
		for line := range strings.Lines(out) {
			if strings.Contains(line, "socket:") || strings.Contains(line, "net:[") || strings.Contains(line, "user:[") || strings.Contains(line, "tun") {
				t.Errorf("the command has %s", line)
			}
		}
	}, policy.Set("network.forward", fmt.Sprint(port)))
}

// L5: a command whose network cannot be made does not run, and the error says what
// could not be made.
func TestNoNetworkNoCommand(t *testing.T) {
	port := webServer(t)
	// The proxy inside has the port that is forwarded to.
	taken := policy.Set("network.forward", fmt.Sprintf("%d:3128", port))
	eachNetworked(t, func(t *testing.T, n *networked) {
		if n.wrapped {
			c := wrap(t, n.session, n.dir, "touch ran")
			out, err := c.CombinedOutput()
			if err == nil || c.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "network.forward") {
				t.Errorf("the launcher ended with %v: %s", err, out)
			}
		} else {
			err := n.session.Command(t.Context(), "sh", "-c", "touch ran").Run()
			if err == nil || !strings.Contains(err.Error(), "make the network") || !strings.Contains(err.Error(), "network.forward") {
				t.Errorf("the error is %v", err)
			}
		}
		if _, err := os.Stat(n.dir + "/ran"); err == nil {
			t.Error("the command ran")
		}
	}, policy.AllowHosts("example.com"), policy.Set("network.link", "proxy"), taken)
}
