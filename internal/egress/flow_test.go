package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
)

func echo(c net.Conn) { io.Copy(c, c); closeWrite(c) }

// N3: raw TCP per host and port; the record is exact.
func TestRawProtocolIsCarriedAndRecorded(t *testing.T) {
	w := newWorld(t, "good.example:7")
	w.serve(goodAddr+":7", echo)
	c, err := w.reach("good.example", "7")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v: a text without an end of line has to arrive", got, err)
	}
	c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Fatalf("rest %q, %v", rest, err)
	}
	r := w.ended(1)[0]
	if r.Sent != 5 || r.Received != 5 || r.Name != "good.example" || r.Addr.String() != goodAddr || r.Port != 7 || !r.Allowed ||
		r.Rule != judge.RuleNetworkAllow || r.Subject != "good.example:7" || r.Error != "" || r.Direction != "out" || r.Protocol != "tcp" || r.Duration <= 0 {
		t.Errorf("record is %+v", r)
	}
}

// N3: in SSH, SMTP and others the server speaks first.
func TestServerSpeaksFirst(t *testing.T) {
	w := newWorld(t, "good.example:25")
	w.serve(goodAddr+":25", func(c net.Conn) {
		io.WriteString(c, "220 ready\r\n")
		line := make([]byte, 6)
		io.ReadFull(c, line)
		c.Write(line)
	})
	c, err := w.reach("good.example", "25")
	if err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 11)
	if _, err := io.ReadFull(c, greeting); err != nil {
		t.Fatalf("the greeting is held back: %v", err)
	}
	io.WriteString(c, "EHLO\r\n")
	if got, err := io.ReadAll(c); string(got) != "EHLO\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBigTransfersKeepEveryByte(t *testing.T) {
	w := newWorld(t, "good.example:9000")
	w.serve(goodAddr+":9000", echo)
	c, err := w.reach("good.example", "9000")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("\x00\x01binary and long\xff"), 1<<18)
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, c)
	want := sha256.Sum256(data)
	if err != nil || n != int64(len(data)) || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Fatalf("%d bytes of %d, %v", n, len(data), err)
	}
	if r := w.ended(1)[0]; r.Sent != n || r.Received != n {
		t.Errorf("record says %d and %d of %d", r.Sent, r.Received, n)
	}
}

// A stream that was cut must not look like a complete one.
func TestResetIsPassedOn(t *testing.T) {
	w := newWorld(t, "good.example:9")
	w.serve(goodAddr+":9", func(c net.Conn) {
		io.ReadFull(c, make([]byte, 3))
		reset(c)
	})
	c, err := w.reach("good.example", "9")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "\x00\x00\x00")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	if r := w.ended(1)[0]; r.Error == "" || !r.Allowed {
		t.Errorf("record is %+v", r)
	}
}

// The client waits for a server that half-closes, and the server for the client.
func TestHalfCloseIsKept(t *testing.T) {
	w := newWorld(t, "good.example:9")
	w.serve(goodAddr+":9", func(c net.Conn) {
		closeWrite(c)
		got, _ := io.ReadAll(c)
		if string(got) != "\x01late" {
			t.Errorf("the server got %q", got)
		}
	})
	c, err := w.reach("good.example", "9")
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Fatalf("%q, %v", rest, err)
	}
	io.WriteString(c, "\x01late")
	c.Close()
	if r := w.ended(1)[0]; r.Sent != 5 || r.Error != "" {
		t.Errorf("record is %+v", r)
	}
}

func TestFailureToConnectIsNoRefusal(t *testing.T) {
	w := newWorld(t, "good.example:7")
	if _, err := w.reach("good.example", "7"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v", err)
	}
	if r := w.ended(1)[0]; !r.Allowed || r.Error != "connection refused" {
		t.Errorf("record is %+v", r)
	}
	if d := w.denied(); len(d) != 0 {
		t.Errorf("denials: %v", d)
	}
}

// N3: what no rule allows is refused, and each denial is recorded.
func TestRefusedAddressAndPort(t *testing.T) {
	w := newWorld(t, "good.example:7")
	w.serve(goodAddr+":22", echo)
	w.lookup("good.example")
	for _, address := range []string{goodAddr + ":22", otherAddr + ":7", "[2606:2800:220:1::1]:7"} {
		if _, err := w.connect(address); !errors.Is(err, errRefused) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	if len(w.dials()) != 0 {
		t.Errorf("dialled %v", w.dials())
	}
	records, denials := w.ended(3), w.denied()
	if len(denials) != 3 || runoption.Text(denials[0].Fix...) != "--allow good.example:22" || runoption.Text(denials[1].Fix...) != "--allow "+otherAddr+":7" {
		t.Errorf("denials: %+v", denials)
	}
	for _, r := range records {
		if r.Allowed || r.Rule != judge.RuleNetworkAllow {
			t.Errorf("record is %+v", r)
		}
	}
}

// An empty list allows nothing.
func TestNoRulesAllowNothing(t *testing.T) {
	w := newWorld(t)
	w.serve(goodAddr+":7", echo)
	if _, err := w.connect(goodAddr + ":7"); !errors.Is(err, errRefused) {
		t.Error(err)
	}
	w.lookup("good.example")
	if len(w.resolved) != 0 {
		t.Errorf("asked upstream for %v", w.resolved)
	}
}

func TestTooManyConnections(t *testing.T) {
	l := defaultLimits()
	l.tcp, l.udp = 2, 1
	w := newLimitedWorld(t, l, "good.example")
	w.serve(goodAddr+":7", echo)
	w.lookup("good.example")
	for range 2 {
		if _, err := w.connect(goodAddr + ":7"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.connect(goodAddr + ":7"); !errors.Is(err, errLimit) {
		t.Fatalf("got %v", err)
	}
	if w.denied() != nil {
		t.Error("a limit is no rule")
	}
}

func TestCloseEndsAndRecordsEverything(t *testing.T) {
	w := newWorld(t, "good.example")
	w.serve(goodAddr+":7", echo)
	w.lookup("good.example")
	var clients []*net.TCPConn
	for range 20 {
		c, err := w.connect(goodAddr + ":7")
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	w.gate.Close()
	if n := len(w.ended(20)); n != 20 {
		t.Errorf("%d records", n)
	}
	for _, c := range clients {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlives the gate")
		}
	}
	if _, err := w.connect(goodAddr + ":7"); err == nil {
		t.Error("a closed gate opens")
	}
}

func TestClientThatGivesUpBeforeRelay(t *testing.T) {
	w := newWorld(t, "good.example")
	w.serve(goodAddr+":7", echo)
	w.lookup("good.example")
	f, r := w.gate.OpenTCP(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort(goodAddr+":7"))
	if r != nil {
		t.Fatal(r)
	}
	f.Close()
	f.Close()
	if n := len(w.ended(1)); n != 1 || len(w.gate.tcp) != 0 {
		t.Errorf("%d records, %d places taken", n, len(w.gate.tcp))
	}
}

// The owner is asked while the client still waits, with the client's own view.
func TestOwnerIsInTheRecords(t *testing.T) {
	w := newWorld(t, "good.example:7")
	w.gate.config.Owner = func(protocol string, local, remote netip.AddrPort) (int, string) {
		if protocol == "tcp" && local.String() == "198.18.0.2:40000" {
			return 42, "curl to " + remote.String()
		}
		return 0, ""
	}
	w.connect(otherAddr + ":7")
	if d := w.denied()[0]; d.Pid != 42 || d.Program != "curl to "+otherAddr+":7" {
		t.Errorf("denial is %+v", d)
	}
	if r := w.ended(1)[0]; r.Pid != 42 {
		t.Errorf("record is %+v", r)
	}
}

func TestManyConnectionsAtOnce(t *testing.T) {
	w := newWorld(t, "good.example:7")
	w.serve(goodAddr+":7", echo)
	w.lookup("good.example")
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			c, err := w.connect(goodAddr + ":7")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			data := bytes.Repeat([]byte{1, 2, 3}, 10000)
			go func() { c.Write(data); c.CloseWrite() }()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
	w.ended(100)
}

// N3: UDP per host and port.
func TestDatagrams(t *testing.T) {
	w := newWorld(t, "udp://good.example:53")
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w.servers["udp "+goodAddr+":53"] = server.LocalAddr().String()
	w.lookup("good.example")
	client := netip.MustParseAddrPort("198.18.0.2:5000")
	c, r := w.gate.OpenUDP(context.Background(), client, netip.MustParseAddrPort(goodAddr+":53"))
	if r != nil {
		t.Fatal(r)
	}
	c.Write([]byte("question"))
	b := make([]byte, 100)
	_, from, _ := server.ReadFrom(b)
	server.WriteTo([]byte("ok"), from)
	_ = c.SetDeadline(time.Now().Add(testenv.Patience))
	if n, err := c.Read(b); err != nil || string(b[:n]) != "ok" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	c.Close()
	c.Close()
	if got := w.ended(1); len(got) != 1 || got[0].Sent != 8 || got[0].Received != 2 || got[0].Protocol != "udp" || !got[0].Allowed {
		t.Errorf("records are %+v", got)
	}
	if _, r := w.gate.OpenUDP(context.Background(), client, netip.MustParseAddrPort(goodAddr+":443")); r == nil || r.Err() != nil || r.Answers() {
		t.Errorf("got %v", r)
	}
	if d := w.denied(); len(d) != 1 || runoption.Text(d[0].Fix...) != "--allow udp://good.example:443" {
		t.Errorf("denials are %v", d)
	}
	// The rule is for UDP alone.
	if _, err := w.connect(goodAddr + ":53"); !errors.Is(err, errRefused) {
		t.Error(err)
	}
}

func TestPing(t *testing.T) {
	w := newWorld(t, "icmp://good.example")
	w.lookup("good.example")
	me := netip.MustParseAddr("198.18.0.2")
	for range 3 {
		if r := w.gate.Ping(context.Background(), me, netip.MustParseAddr(goodAddr)); r != nil {
			t.Fatal(r)
		}
	}
	if n := len(w.ended(1)); n != 1 {
		t.Errorf("%d records of one ping program", n)
	}
	if r := w.gate.Ping(context.Background(), me, netip.MustParseAddr(otherAddr)); r == nil || r.Err() != nil {
		t.Error("not refused")
	}
	hole := w.lookup("bad.example")[0]
	if r := w.gate.Ping(context.Background(), me, hole); r == nil || r.Denial().Host != "bad.example" {
		t.Errorf("got %v", r)
	}
}
