package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// dnsServers serves the gate's resolver on real sockets.
func (w *world) dnsServers() (udp, tcp string) {
	w.t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	l := listen(w.t)
	go w.gate.ServeDNS(packets, l)
	return packets.LocalAddr().String(), l.Addr().String()
}

// N3: names can be looked up over both transports.
func TestResolverOverBothTransports(t *testing.T) {
	w := newWorld(t, "good.example", "*.good.example")
	w.name("good.example", goodAddr, "2606:2800:220:1::1")
	udp, tcp := w.dnsServers()
	for _, network := range []string{"udp", "tcp"} {
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, map[string]string{"udp": udp, "tcp": tcp}[network])
		}}
		got, err := r.LookupNetIP(context.Background(), "ip", "good.example.")
		slices.SortFunc(got, netip.Addr.Compare)
		if err != nil || fmt.Sprint(got) != "["+goodAddr+" 2606:2800:220:1::1]" {
			t.Errorf("%s: %v, %v", network, got, err)
		}
		if _, err := r.LookupNetIP(context.Background(), "ip", "gone.good.example."); !notFound(err) {
			t.Errorf("%s: a name that does not exist: %v", network, err)
		}
	}
}

// N3: a name that no rule allows is not sent anywhere, and leads to an address of
// its own.
func TestRefusedNames(t *testing.T) {
	w := newWorld(t, "good.example", "*.wild.example", "!no.wild.example")
	for _, name := range []string{"bad.example", "secret-data.evil.example", "evilgood.example", "good.example.evil.example", "wild.example", "no.wild.example"} {
		m := w.ask(name, dnsmessage.TypeA)
		hole := addressesIn(m)
		if m.RCode != dnsmessage.RCodeSuccess || len(hole) != 1 || !inSinkhole(hole[0]) || m.Answers[0].Header.TTL != 1 {
			t.Errorf("%s: %v", name, m.Answers)
		}
		if again := addressesIn(w.ask(strings.ToUpper(name), dnsmessage.TypeA)); again[0] != hole[0] {
			t.Errorf("%s: %v, then %v", name, hole, again)
		}
		if got := explanation(m); !strings.Contains(got, name) || !strings.Contains(got, "denied resolve") {
			t.Errorf("%s: the extended error says %q", name, got)
		}
		if m := w.ask(name, dnsmessage.TypeAAAA); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
			t.Errorf("%s: AAAA gives %v", name, m.Answers)
		}
		if m := w.ask(name, dnsmessage.TypeTXT); m.RCode != dnsmessage.RCodeRefused {
			t.Errorf("%s: TXT gives %v", name, m.RCode)
		}
	}
	if len(w.resolved) != 0 {
		t.Errorf("asked upstream for %v", w.resolved)
	}
	d := w.denied()
	if len(d) != 6 || d[0].Op != plan.OpResolve || d[0].Host != "bad.example" || runoption.Text(d[0].Fix...) != "--allow bad.example" {
		t.Errorf("denials are %v: one for each name", d)
	}
	if r := w.ended(6)[0]; r.Protocol != "dns" || r.Name != "bad.example" || r.Allowed || r.Port != 53 {
		t.Errorf("record is %+v", r)
	}
}

// explanation is the text of the extended error "blocked".
func explanation(m dnsmessage.Message) string {
	for _, r := range m.Additionals {
		if opt, ok := r.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				if o.Code == optionExtendedError && binary.BigEndian.Uint16(o.Data) == errorBlocked {
					return string(o.Data[2:])
				}
			}
		}
	}
	return ""
}

// The letters of the question come back as they were sent: clients check (0x20).
func TestQuestionIsRepeated(t *testing.T) {
	w := newWorld(t, "good.example")
	m := w.ask("GoOd.eXaMPle", dnsmessage.TypeA)
	if m.Questions[0].Name.String() != "GoOd.eXaMPle." || m.Answers[0].Header.Name.String() != "GoOd.eXaMPle." || m.ID != 4711 || !m.RecursionAvailable {
		t.Errorf("got %v", m.GoString())
	}
	if w.resolved[0] != "good.example" {
		t.Errorf("asked upstream for %v", w.resolved)
	}
}

// N3: no private or metadata address behind a public name.
func TestRebinding(t *testing.T) {
	private := []string{"127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fd00:ec2::254",
		"::ffff:10.0.0.1", "64:ff9b::a00:1", "fe80::1", "224.0.0.1", "198.18.0.1", "198.19.0.1"}
	t.Run("removed from answers", func(t *testing.T) {
		w := newWorld(t, "*")
		w.name("mixed.example", append(private, goodAddr)...)
		if got := w.lookup("mixed.example"); len(got) != 1 || got[0].String() != goodAddr {
			t.Errorf("got %v", got)
		}
	})
	for _, addr := range private {
		t.Run(addr, func(t *testing.T) {
			w := newWorld(t, "*", "mixed.example")
			w.name("mixed.example", addr)
			got := w.lookup("mixed.example")
			if len(got) != 1 || !inSinkhole(got[0]) {
				t.Fatalf("got %v", got)
			}
			for _, target := range []string{addr, got[0].String()} {
				if _, err := w.connect(net.JoinHostPort(target, "22")); !errors.Is(err, errRefused) {
					t.Errorf("%s: %v", target, err)
				}
			}
			if len(w.dials()) != 0 {
				t.Errorf("dialled %v", w.dials())
			}
			d := w.denied()
			if d[0].Rule != judge.RuleNetworkPrivate || d[len(d)-1].Rule != judge.RuleNetworkPrivate {
				t.Errorf("denials are %v", d)
			}
		})
	}
	t.Run("second answer", func(t *testing.T) {
		w := newWorld(t, "good.example")
		w.ttl = 0
		w.serve(goodAddr+":7", echo)
		first := w.lookup("good.example")
		w.name("good.example", "127.0.0.1")
		w.gate.cache.byName = nil
		w.lookup("good.example")
		// The address of the first answer is still good, the new one never is.
		if _, err := w.connect(first[0].String() + ":7"); err != nil {
			t.Error(err)
		}
		if _, err := w.connect("127.0.0.1:7"); !errors.Is(err, errRefused) {
			t.Error(err)
		}
	})
	t.Run("the host itself", func(t *testing.T) {
		w := newWorld(t, "*")
		w.own = []netip.Addr{netip.MustParseAddr(goodAddr)}
		if got := w.lookup("good.example"); !inSinkhole(got[0]) {
			t.Errorf("got %v", got)
		}
		if _, err := w.connect(goodAddr + ":22"); !errors.Is(err, errRefused) {
			t.Error(err)
		}
	})
	t.Run("unless a rule for addresses covers it", func(t *testing.T) {
		w := newWorld(t, "db.example", "10.0.0.0/8:5432")
		w.name("db.example", "10.0.0.5")
		w.serve("10.0.0.5:5432", echo)
		if got := w.lookup("db.example"); got[0].String() != "10.0.0.5" {
			t.Errorf("got %v", got)
		}
		if _, err := w.connect("10.0.0.5:5432"); err != nil {
			t.Error(err)
		}
		if _, err := w.connect("10.0.0.5:22"); !errors.Is(err, errRefused) {
			t.Error(err)
		}
	})
}

// A connection to a refused name succeeds once the name is allowed.
func TestSinkholeAfterGrant(t *testing.T) {
	w := newWorld(t, "other.example")
	w.serve(goodAddr+":7", echo)
	hole := w.lookup("good.example")[0].String()
	if _, err := w.connect(hole + ":7"); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	w.allow("good.example:7")
	c, err := w.connect(hole + ":7")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "\x00")
	c.CloseWrite()
	if got, _ := io.ReadAll(c); string(got) != "\x00" {
		t.Errorf("got %q", got)
	}
	records := w.ended(3)
	if r := records[2]; r.Name != "good.example" || r.Addr.String() != goodAddr || !r.Allowed {
		t.Errorf("record is %+v", r)
	}
}

// Names of refused look-ups take up bounded space.
func TestSinkholesAreBounded(t *testing.T) {
	w := newWorld(t, "good.example")
	for i := range 2 * maxSinkholes {
		w.gate.holes.of(fmt.Sprintf("n%d.example", i), time.Now())
	}
	if n, m := len(w.gate.holes.byName), len(w.gate.holes.byAddr); n != maxSinkholes || m != maxSinkholes {
		t.Errorf("%d names, %d addresses", n, m)
	}
	a, _ := w.gate.holes.of("last.example", time.Now())
	if w.gate.holes.name(a) != "last.example" {
		t.Errorf("%v leads to %q", a, w.gate.holes.name(a))
	}
}

func TestNamesAreBounded(t *testing.T) {
	var n names
	now := time.Now()
	for i := range 2 * maxAddrs {
		n.remember("a.example", []netip.Addr{netip.AddrFrom4([4]byte{8, byte(i >> 16), byte(i >> 8), byte(i)})}, 0, now)
	}
	one := netip.MustParseAddr("9.9.9.9")
	for i := range 100 {
		n.remember(fmt.Sprintf("n%d.example", i), []netip.Addr{one}, 0, now)
	}
	if len(n.byAddr) != maxAddrs || len(n.of(one, now)) != maxNamesPerAddr || n.of(one, now)[0] != "n99.example" {
		t.Errorf("%d addresses, %v", len(n.byAddr), n.of(one, now))
	}
	if got := n.of(one, now.Add(keepName+time.Second)); len(got) != 0 {
		t.Errorf("still there: %v", got)
	}
}

func TestLookupsAreBounded(t *testing.T) {
	w := newWorld(t, "*")
	for i := range 2 * maxLookups {
		name := fmt.Sprintf("n%d.example", i)
		w.names[name] = []netip.Addr{netip.MustParseAddr(goodAddr)}
		w.lookup(name)
	}
	if n := len(w.gate.cache.byName); n > maxLookups {
		t.Errorf("%d kept", n)
	}
}

// Queries at the same time are one, and A and AAAA are one look-up.
func TestLookupsAreShared(t *testing.T) {
	w := newWorld(t, "good.example")
	w.lookup("good.example")
	w.lookup("good.example")
	if len(w.resolved) != 1 {
		t.Errorf("asked %d times", len(w.resolved))
	}
}

func TestOddQueries(t *testing.T) {
	w := newWorld(t, "*")
	client := dnsClient{protocol: "udp"}
	good := makeQuery(t, "good.example", dnsmessage.TypeA)
	edit := func(change func(b []byte)) []byte {
		b := slices.Clone(good)
		change(b)
		return b
	}
	for _, test := range []struct {
		name  string
		query []byte
		code  int // -1: no answer
	}{
		{"an answer", edit(func(b []byte) { b[2] |= 0x80 }), -1},
		{"empty", nil, -1},
		{"cut", good[:14], -1},
		{"another opcode", edit(func(b []byte) { b[2] |= 2 << 3 }), int(dnsmessage.RCodeNotImplemented)},
		{"two questions", edit(func(b []byte) { b[5] = 2 }), int(dnsmessage.RCodeFormatError)},
		{"no question", edit(func(b []byte) { b[5] = 0 }), -1},
		{"an answer section", edit(func(b []byte) { b[7] = 1 }), int(dnsmessage.RCodeFormatError)},
		{"more additionals than there are", edit(func(b []byte) { b[11] = 9 }), int(dnsmessage.RCodeFormatError)},
		{"class CHAOS", edit(func(b []byte) { b[12+14+3] = 3 }), int(dnsmessage.RCodeRefused)},
		{"type ANY", makeQuery(t, "good.example", typeANY), int(dnsmessage.RCodeNotImplemented)},
		{"zone transfer", makeQuery(t, "good.example", dnsmessage.Type(252)), int(dnsmessage.RCodeNotImplemented)},
		{"a pointer to itself", append(slices.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1), -1},
		{"a name with NUL", edit(func(b []byte) { b[13] = 0 }), int(dnsmessage.RCodeNameError)},
		{"a name with a space", edit(func(b []byte) { b[13] = ' ' }), int(dnsmessage.RCodeNameError)},
		{"a name that is an address", makeQuery(t, "127.0.0.1", dnsmessage.TypeA), int(dnsmessage.RCodeNameError)},
		{"a name that some take for an address", makeQuery(t, "0x7f.1", dnsmessage.TypeA), int(dnsmessage.RCodeNameError)},
		{"the root", makeQuery(t, "", dnsmessage.TypeA), int(dnsmessage.RCodeNameError)},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := w.gate.answer(client, test.query)
			if test.code < 0 {
				if b != nil {
					t.Errorf("answered %x", b)
				}
				return
			}
			if len(b) < 12 || int(b[3]&15) != test.code || b[2]&0x80 == 0 || b[0] != good[0] || b[1] != good[1] {
				t.Errorf("answered %x", b)
			}
		})
	}
	if len(w.resolved) != 0 {
		t.Errorf("asked upstream for %v", w.resolved)
	}
}

func TestAnswersThatDoNotFit(t *testing.T) {
	w := newWorld(t, "good.example")
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("8.8.1.%d", i))
	}
	w.name("good.example", many...)
	q := makeQuery(t, "good.example", dnsmessage.TypeA)
	binary.BigEndian.PutUint16(q[len(q)-8:], 512)
	b := w.gate.answer(dnsClient{protocol: "udp"}, q)
	if len(b) > 512 || b[2]&2 == 0 {
		t.Errorf("%d bytes, cut: %v", len(b), b[2]&2 != 0)
	}
	b = w.gate.answer(dnsClient{protocol: "tcp"}, q)
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || len(m.Answers) != maxAnswers {
		t.Errorf("%d answers, %v", len(m.Answers), err)
	}
}

// Whoever connects and says nothing, or too much, is not waited for.
func TestDNSConnectionsAreBounded(t *testing.T) {
	l := defaultLimits()
	l.dnsConns, l.idle = 2, 100*time.Millisecond
	w := newLimitedWorld(t, l, "good.example")
	_, tcp := w.dnsServers()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", tcp)
		if errors.Is(err, syscall.ECONNRESET) {
			c, _ = net.Pipe() // refused before it was seen to be accepted
			c.Close()
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		return c
	}
	big, slow := dial(), dial()
	binary.Write(big, binary.BigEndian, uint16(60000))
	big.Write(make([]byte, 60000))
	slow.Write([]byte{0})
	for _, c := range []net.Conn{big, slow, dial()} {
		var late net.Error
		if _, err := io.ReadAll(c); errors.As(err, &late) && late.Timeout() {
			t.Error(err)
		}
	}
}
