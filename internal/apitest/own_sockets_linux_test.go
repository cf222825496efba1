package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// ownSockets uses sockets of its own in every way that programs do, and says how
// each went.
const ownSockets = `
import errno, os, select, signal, socket, struct, subprocess, sys, threading, time
U, TMP = socket.AF_UNIX, "/tmp/own-%d" % os.getpid()
def say(what, ok): print(what, "ok" if ok else "FAILED", flush=True)
def fails(with_, call, *args):
    try: call(*args)
    except OSError as e: return e.errno == with_
    return False
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    s = socket.socket(U, kind); s.bind("s"); s.listen(5)
    c = socket.socket(U, kind); c.connect("s"); a, _ = s.accept(); c.send(b"hi")
    uid = struct.unpack("iii", a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    say("connected %d" % kind, a.recv(9) == b"hi" and uid == os.getuid())
    say("connected twice", fails(errno.EISCONN, c.connect, "s"))
    n = socket.socket(U, kind); n.setblocking(False); n.connect("s"); say("not waiting", True)
    os.rename("s", "r"); r = socket.socket(U, kind); r.connect("r"); say("renamed", True)
    d = os.open("r", os.O_PATH); socket.socket(U, kind).connect("/proc/self/fd/%d" % d); say("by descriptor", True)
    os.symlink("r", "l"); socket.socket(U, kind).connect(os.getcwd() + "/l"); say("by link", True)
    s.close(); os.unlink("l")
    say("server gone", fails(errno.ECONNREFUSED, socket.socket(U, kind).connect, "r"))
    os.unlink("r")
    say("missing", fails(errno.ENOENT, socket.socket(U, kind).connect, "r"))
open("file", "w").close(); say("no socket", fails(errno.ECONNREFUSED, socket.socket(U).connect, "file"))
s = socket.socket(U, socket.SOCK_DGRAM); s.bind("d"); c = socket.socket(U, socket.SOCK_DGRAM); c.connect("d"); c.send(b"hi")
say("datagram", s.recv(9) == b"hi"); os.unlink("d")
s = socket.socket(U); s.bind(TMP); s.listen(5)
say("in /tmp", subprocess.run([sys.executable, "-c", "import socket; socket.socket(socket.AF_UNIX).connect('%s')" % TMP]).returncode == 0); os.unlink(TMP)
s = socket.socket(U); NAME = "\0own-%d" % os.getpid(); s.bind(NAME); s.listen(5); socket.socket(U).connect(NAME); say("abstract", True)
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    s = socket.create_server((host, 0), family=family); c = socket.create_connection(s.getsockname()[:2], timeout=5); say("tcp", True)
    port = s.getsockname()[1]; s.close()
    say("tcp refused", fails(errno.ECONNREFUSED, socket.socket(family).connect, (host, port)))
    u = socket.socket(family, socket.SOCK_DGRAM); u.connect((host, 9)); say("udp", u.getpeername()[1] == 9)
# A connect that waits lets others go on, and ends when its server takes it.
s = socket.socket(U); s.bind("full"); s.listen(0); socket.socket(U).connect("full")
n = socket.socket(U); n.setblocking(False); say("full", fails(errno.EAGAIN, n.connect, "full"))
got = []
def waits(): c = socket.socket(U); c.connect("full"); got.append(c)
t = threading.Thread(target=waits); t.start(); time.sleep(0.3)
open("meanwhile", "w").close(); say("waits", got == []); s.accept(); t.join(20); say("then connected", len(got) == 1)
# A signal's handler runs while a connect waits.
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(0); held = []
for _ in range(4):
    c = socket.socket(); c.setblocking(False); c.connect_ex(s.getsockname()); held.append(c)
class Alarm(Exception): pass
def handler(*_): raise Alarm
signal.signal(signal.SIGALRM, handler); signal.setitimer(signal.ITIMER_REAL, 0.3)
try: socket.socket().connect(s.getsockname()); say("interrupted", False)
except Alarm: say("interrupted", True)
print("end")
`

// C2: with a broker that connects for the command, the command's own sockets work as
// they do without one.
func TestOwnSockets(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "/usr/bin/python3")
	check := func(t *testing.T, out string) {
		if !strings.HasSuffix(out, "end\n") || strings.Contains(out, "FAILED") {
			t.Errorf("%s", out)
		}
	}
	check(t, outside(t, nil, "/bin/sh", "-c", `cd "$1" && /usr/bin/python3 -c "$2"`, "sh", shortDir(t), ownSockets))
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkUser, policy.NetworkHost} {
		t.Run(mode.String(), func(t *testing.T) {
			eachWay(t, nil, []policy.Option{policy.WithNetwork(mode), policy.AllowSocket(policy.Datagrams)}, func(t *testing.T, s *shell) {
				if err := os.WriteFile(filepath.Join(s.dir, "sockets.py"), []byte(ownSockets), 0o600); err != nil {
					t.Fatal(err)
				}
				out, _ := s.run("/usr/bin/python3 sockets.py")
				check(t, out)
			})
		})
	}
}

// packetPairs uses a pair of datagram sockets as programs do.
const packetPairs = `
import errno, os, socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.send(b"one"); a.send(b"two"); b.send(b"back")
assert (b.recv(9), b.recv(9), a.recv(9)) == (b"one", b"two", b"back"), "messages"
assert not os.get_inheritable(a.fileno()) and a.fileno() != b.fileno() > 2, "descriptors"
os.set_blocking(a.fileno(), False)
try: a.recv(9); assert False, "waited"
except BlockingIOError: pass
a.sendto(b"kept", "/run/nobody"); assert b.recv(9) == b"kept", "sent elsewhere"
print("end")
`

// C2: a pair of datagram sockets works without a grant, and sends to nobody else;
// socat needs one to start.
func TestPacketPairs(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "/usr/bin/python3", "socat")
	eachWay(t, nil, nil, func(t *testing.T, s *shell) {
		if err := os.WriteFile(filepath.Join(s.dir, "pairs.py"), []byte(packetPairs), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, r := s.run("/usr/bin/python3 pairs.py && echo hello | socat - SYSTEM:cat"); out != "end\nhello\n" {
			t.Errorf("%q, %+v", out, r)
		}
	})
}
