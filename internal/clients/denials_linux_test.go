package clients

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// A refusal is a connection that a sandbox without a network does not make.
type refusal struct {
	name string
	// flags are those of the run that is refused.
	flags []string
	// command makes the connection, of which want is printed. inProcess: it is a
	// client of the test's own.
	command   []string
	inProcess bool
	want      string
	// record is the denial: host and port or path, protocol and rule; grant is the
	// option in it.
	record, grant string
}

// N1 C2 C3: a connection that is denied is recorded, once, with the rule and the option
// that allows it; with that option, as it is, the same command succeeds.
func TestConnectGrants(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		testenv.Need(t, "/usr/bin/python3", "landlock")
		for _, r := range append(inetRefusals(t), unixRefusals(t, s)...) {
			t.Run(r.name, func(t *testing.T) { r.check(t, s) })
		}
	})
}

func (r *refusal) run(t *testing.T, s *sandbox, more ...string) *outcome {
	t.Helper()
	s = s.with(append(r.flags, more...)...)
	if r.inProcess {
		return s.goProgram(t, r.command...)
	}
	return s.run(t, r.command...)
}

func (r *refusal) check(t *testing.T, s *sandbox) {
	o := r.run(t, s)
	if o.status == 0 {
		t.Fatalf("it was not refused: %s", o.stdout)
	}
	denied := o.report.Result.Denied
	if len(denied) != 1 {
		t.Fatalf("on record: %+v, stderr: %s", denied, o.stderr)
	}
	d := denied[0]
	where := d.Path
	if d.Host != "" {
		where = net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) + " " + d.Protocol
	}
	if got := d.Op + " " + where + " " + d.Rule; got != r.record || d.Grant != r.grant || d.Program == "" {
		t.Fatalf("on record: %q with %q by %q, want %q with %q", got, d.Grant, d.Program, r.record, r.grant)
	}
	if o = r.run(t, s, strings.Fields(d.Grant)...); o.status != 0 || !strings.Contains(o.stdout, r.want) {
		t.Errorf("with %s: status %d\n%s%s", d.Grant, o.status, o.stdout, o.stderr)
	}
}

// inetRefusals are about the internet and the host's loopback, for sockets that wait
// for a connection (Python) and that do not (Go).
func inetRefusals(t *testing.T) []refusal {
	tcp, host := net.JoinHostPort(testnet.Nameless, "7"), greeter(t, "tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(host)
	python := "import socket; s = socket.create_connection((%q, %s)); s.sendall(b'said'); print(s.recv(99))"
	return []refusal{
		{name: "tcp", inProcess: true, command: []string{"tcp", tcp, "said"}, want: "said",
			record: "connect " + tcp + " tcp network.mode", grant: "--allow " + tcp},
		{name: "udp", inProcess: true, command: []string{"udp", tcp, "said"}, want: "said",
			record: "connect " + tcp + " udp network.mode", grant: "--allow udp://" + tcp},
		{name: "private", flags: []string{"--net", "loopback"}, command: []string{"/usr/bin/python3", "-c", fmt.Sprintf(python, testnet.Private, "7")}, want: "said",
			record: "connect " + testnet.Private + ":7 tcp network.mode", grant: "--net user --allow " + testnet.Private + ":7"},
		{name: "host's loopback", inProcess: true, command: []string{"hear", host}, want: "hello",
			record: "connect " + host + " tcp network.private", grant: "--forward " + port},
		{name: "host's loopback, waiting", flags: []string{"--net", "user"}, command: []string{"/usr/bin/python3", "-c", fmt.Sprintf(python, "127.0.0.1", port)}, want: "hello",
			record: "connect " + host + " tcp network.private", grant: "--forward " + port},
	}
}

// unixRefusals are about sockets in a hidden folder, in the workspace, and behind a
// link.
func unixRefusals(t *testing.T, s *sandbox) []refusal {
	dir, err := os.MkdirTemp("/tmp", "cl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	beside := "s" + strconv.Itoa(os.Getpid())
	if err := os.Symlink(dir+"/s", filepath.Join(s.workspace, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(s.workspace) // the path of a socket is short
	greeter(t, "unix", dir+"/s")
	greeter(t, "unix", beside)
	greeter(t, "unix", "@"+dir)
	python := func(path string) []string {
		return []string{"/usr/bin/python3", "-c", "import socket; s = socket.socket(socket.AF_UNIX); s.connect('" + path + "'); print(s.recv(99))"}
	}
	masked := filepath.Join(s.workspace, beside)
	return []refusal{
		{name: "hidden socket", command: python(dir + "/s"), want: "hello", record: "connect " + dir + "/s sockets", grant: "--socket " + dir + "/s"},
		{name: "socket behind a link", command: python("link"), want: "hello", record: "connect " + dir + "/s sockets", grant: "--socket " + dir + "/s"},
		{name: "masked socket", command: python(beside), want: "hello", record: "connect " + masked + " sockets", grant: "--socket " + masked},
		{name: "host's network", flags: []string{"--net", "host"}, command: python(beside), want: "hello", record: "connect " + masked + " sockets", grant: "--socket " + masked},
		{name: "abstract socket", command: python(`\0` + dir), want: "hello", record: "connect @" + dir + " sockets", grant: "--socket @" + dir},
		{name: "datagrams", command: []string{"/usr/bin/python3", "-c", ownDatagrams}, want: "said", record: "connect unix datagram sockets sockets", grant: "--socket datagrams"},
	}
}

// ownDatagrams sends from one of its datagram sockets to another.
const ownDatagrams = `
import socket
to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); to.bind("gram")
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"said", "gram"); print(to.recv(99))
`

// greeter greets everyone who connects to it, and returns its address.
func greeter(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(testnet.Greeting))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
