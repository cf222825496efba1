package apitest

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// abstractServer listens at an abstract name of the host. It answers each client
// with an open file and then with all that the client sends, in capitals.
func abstractServer(t *testing.T, name, secret string) {
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
			go serveAbstract(c, secret)
		}
	}()
}

// abstractName is a name that nobody else has.
func abstractName(t *testing.T) string { return fmt.Sprintf("cloche-%s-%d", t.Name(), os.Getpid()) }

func serveAbstract(c *net.UnixConn, secret string) {
	defer c.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	defer r.Close()
	_, _ = w.WriteString(secret)
	w.Close()
	if _, _, err := c.WriteMsgUnix([]byte("!"), syscall.UnixRights(int(r.Fd())), nil); err != nil {
		return
	}
	text, _ := io.ReadAll(c)
	_, _ = c.Write([]byte(strings.ToUpper(string(text))))
}

// abstractClient talks to such a server: it prints what is in the file that was
// passed, and what comes back.
const abstractClient = `
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect("\0" + sys.argv[1])
data, fds, flags, _ = socket.recv_fds(s, 1, 4)
passed = os.read(fds[0], 100).decode()
text = "x" * 300000 if len(sys.argv) > 2 else "hello"
s.sendall(text.encode())
s.shutdown(socket.SHUT_WR)
back = b""
while True:
    got = s.recv(65536)
    if not got: break
    back += got
print(passed, back.decode() if len(back) < 100 else len(back))
`

// C2: a granted abstract socket is reached, with the descriptors that it passes,
// and no other one.
func TestAbstractSocket(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "/usr/bin/python3")
	granted := abstractName(t)
	abstractServer(t, granted, "passed")
	for _, other := range []string{granted + "x", granted[:len(granted)-1], granted + "/other"} {
		abstractServer(t, other, "other")
	}
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback, policy.NetworkUser} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := []policy.Option{policy.WithNetwork(mode), policy.AllowSocket("@" + granted)}
			eachWay(t, nil, opts, func(t *testing.T, s *shell) {
				file := filepath.Join(s.dir, "client.py")
				if err := os.WriteFile(file, []byte(abstractClient), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, ok := s.run("/usr/bin/python3 client.py " + granted); !ok || out != "passed HELLO\n" {
					t.Errorf("the granted socket: %s", out)
				}
				if out, ok := s.run("/usr/bin/python3 client.py " + granted + " much"); !ok || out != "passed 300000\n" {
					t.Errorf("much: %s", out)
				}
				for _, name := range []string{granted + "x", granted[:len(granted)-1], granted + "/other"} {
					if out, ok := s.run("/usr/bin/python3 client.py " + name); ok {
						t.Errorf("%s answers: %s", name, out)
					}
				}
			})
		})
	}
}

// C2: in the host's own network abstract sockets are closed, too, or that is a
// gap: one of them cannot be opened alone.
func TestAbstractSocketsOfHostNetwork(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "/usr/bin/python3", "landlock")
	name := abstractName(t)
	abstractServer(t, name, "passed")
	eachWay(t, nil, []policy.Option{policy.WithNetwork(policy.NetworkHost)}, func(t *testing.T, s *shell) {
		if err := os.WriteFile(filepath.Join(s.dir, "client.py"), []byte(abstractClient), 0o600); err != nil {
			t.Fatal(err)
		}
		gap := hasGap(t, s.session, "sockets")
		out, ok := s.run("/usr/bin/python3 client.py " + name)
		if ok != gap {
			t.Errorf("reached: %v, and said to be open: %v: %s", ok, gap, out)
		}
	})
	eachWay(t, nil, []policy.Option{policy.WithNetwork(policy.NetworkHost), policy.AllowSocket("@" + name), policy.WithRequire(policy.BestEffort)}, func(t *testing.T, s *shell) {
		if !hasGap(t, s.session, "sockets") {
			t.Error("nothing says that all abstract sockets are open")
		}
		if err := os.WriteFile(filepath.Join(s.dir, "client.py"), []byte(abstractClient), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, ok := s.run("/usr/bin/python3 client.py " + name); !ok {
			t.Errorf("the granted socket: %s", out)
		}
	})
}

// hasGap reports whether the backend leaves a rule open.
func hasGap(t *testing.T, s *cloche.Session, rule string) bool {
	t.Helper()
	l, err := s.Command(t.Context(), "/bin/true").Launch()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range l.Gaps {
		if g.Rule == rule {
			return true
		}
	}
	return false
}
