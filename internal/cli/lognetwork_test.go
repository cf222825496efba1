package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/runlog"
)

// N3: connections are chosen by name, suffix, address, network and port.
func TestHostFilter(t *testing.T) {
	named := audit.Connection{Name: "api.Example.com", Address: "192.0.2.7", Port: 443}
	bare := audit.Connection{Address: "::ffff:10.1.2.3", Port: 22}
	for _, c := range []struct {
		filter      string
		named, bare bool
	}{
		{"", true, true},
		{"api.example.com", true, false},
		{"API.example.com.", true, false},
		{"example.com", false, false},
		{"*.example.com", true, false},
		{"*.api.example.com", false, false},
		{"*.ample.com", false, false},
		{"api.example.com:443", true, false},
		{"api.example.com:80", false, false},
		{"192.0.2.7", true, false},
		{"192.0.2.7:443", true, false},
		{"192.0.2.7:80", false, false},
		{"10.0.0.0/8", false, true},
		{"10.1.2.3", false, true},
		{"fd00::/8", false, false},
	} {
		h, err := parseHostFilter(c.filter)
		if err != nil {
			t.Errorf("%q: %v", c.filter, err)
		}
		if got := h.matches(&named); got != c.named {
			t.Errorf("%q chooses the named one: %v", c.filter, got)
		}
		if got := h.matches(&bare); got != c.bare {
			t.Errorf("%q chooses the bare one: %v", c.filter, got)
		}
	}
	for _, bad := range []string{"a b", "host:99999", "host:", ":443", "host/path", "300.0.0.0/8"} {
		if h, err := parseHostFilter(bad); err == nil || !strings.Contains(err.Error(), "--host "+bad) {
			t.Errorf("%q is read as %+v, %v", bad, h, err)
		}
	}
}

// N3: a line says who, where, how much and by which rule; nothing in it acts on
// the terminal.
func TestWriteConnections(t *testing.T) {
	at := time.Date(2031, 3, 1, 12, 0, 0, 0, time.Local)
	events := []audit.Event{
		{Kind: audit.Start},
		{
			Kind: audit.Connected, Time: at, Verdict: runlog.Allow, Rule: "network.allow", RuleSubject: "*.example.com", DurationMS: 1500,
			Connection: &audit.Connection{Direction: "out", Protocol: "tcp", Name: "api.example.com", Address: "192.0.2.7", Port: 443, Sent: 900, Received: 5 << 20, Requests: 2, PID: 7, Program: "curl"},
		},
		{
			Kind: audit.Connected, Time: at, Verdict: runlog.Deny, Rule: "network.private", Error: "refused",
			Connection: &audit.Connection{Direction: "out", Protocol: "udp", Address: "fd00::1", Port: 53, Program: "a\x1b[2Jb"},
		},
		{Kind: audit.Connected, Time: at, Connection: &audit.Connection{Count: 12, Refused: 3, Sent: 1024}},
	}
	var b strings.Builder
	writeConnections(&b, events, 200)
	want := `2031-03-01 12:00:00  allow out         1.5s ↑900B   ↓5.0M   tcp api.example.com:443 (192.0.2.7) 2 requests by curl: network.allow *.example.com
2031-03-01 12:00:00  deny  out           0s ↑0B     ↓0B     udp [fd00::1]:53 by a\x1b[2Jb: network.private; refused
2031-03-01 12:00:00  -     -             0s ↑1.0K   ↓0B     12 more connections, 3 of them refused
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestShortBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 999: "999B", 1000: "1.0K", 1536: "1.5K", 102400: "100K", 1 << 20: "1.0M", 1 << 62: "4.0E", -5: "0B",
	} {
		if got := shortBytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
