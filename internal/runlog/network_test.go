package runlog

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/testlog"
	"github.com/cloche-dev/cloche/plan"
)

func newNetRun(sink audit.Sink) *Run {
	return &Run{sink: sink, started: true, event: audit.Event{Run: "R", Version: "v", PID: 7, UID: 8, Workspace: "/w", Backend: "native", Confined: true}}
}

// N3: a connection becomes one event with all that is known of it.
func TestConnectionEvent(t *testing.T) {
	var sink testlog.Memory
	r := newNetRun(&sink)
	start := time.Date(2031, 3, 1, 12, 0, 0, 0, time.UTC)
	r.Connection(plan.Connection{
		Start: start, Duration: 1500 * time.Millisecond, Protocol: "tcp", Name: "api.example.com", Addr: netip.MustParseAddr("192.0.2.7"), Port: 443,
		Sent: 10, Received: 20, Requests: 2, Allowed: true, Rule: "network.allow", Subject: "*.example.com", Pid: 42, Program: "/usr/bin/curl", Direction: "out",
	})
	r.Connection(plan.Connection{Start: start, Protocol: "udp", Name: "evil.example", Port: 53, Rule: "network.deny", Subject: "evil.example", Error: "refused", Direction: "out"})
	got := sink.Events()
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	for i, e := range got {
		if e.Kind != audit.Connected || e.Run != "R" || e.PID != 7 || e.UID != 8 || e.Workspace != "/w" || e.Backend != "native" || !e.Confined {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	first := audit.Connection{Direction: "out", Protocol: "tcp", Name: "api.example.com", Address: "192.0.2.7", Port: 443, Sent: 10, Received: 20, Requests: 2, PID: 42, Program: "/usr/bin/curl"}
	e := got[0]
	if *e.Connection != first || e.Verdict != "allow" || e.Rule != "network.allow" || e.RuleSubject != "*.example.com" || e.Subject != "api.example.com:443" ||
		e.DurationMS != 1500 || !e.Time.Equal(start.Add(1500*time.Millisecond)) {
		t.Errorf("got %+v of %+v", e, *e.Connection)
	}
	if e := got[1]; e.Verdict != "deny" || e.Rule != "network.deny" || e.Error != "refused" || e.Connection.Address != "" {
		t.Errorf("got %+v of %+v", e, *e.Connection)
	}
}

// N3: a command cannot fill the log, nor hide one connection behind many others.
func TestConnectionsAreBounded(t *testing.T) {
	var sink testlog.Memory
	r := newNetRun(&sink)
	const extra = 5000
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range (maxConnections + extra) / 10 {
				r.Connection(plan.Connection{Protocol: "tcp", Name: "busy.example", Port: 443, Allowed: true, Sent: 1, Received: 2})
			}
		})
	}
	all.Wait()
	r.Connection(plan.Connection{Protocol: "tcp", Name: "late.example", Port: 443, Allowed: true})
	r.Connection(plan.Connection{Protocol: "tcp", Name: "busy.example", Port: 443})
	if err := r.endConnections(); err != nil {
		t.Fatal(err)
	}
	got := sink.Events()
	if len(got) != maxConnections+3 {
		t.Fatalf("%d events", len(got))
	}
	if c := got[len(got)-3].Connection; c.Name != "late.example" {
		t.Errorf("got %+v", c)
	}
	if e := got[len(got)-2]; e.Verdict != "deny" {
		t.Errorf("got %+v", e)
	}
	if c := got[len(got)-1].Connection; *c != (audit.Connection{Count: extra, Sent: extra, Received: 2 * extra}) {
		t.Errorf("the rest is %+v", c)
	}
}

// N3: new destinations have a bound too.
func TestDestinationsAreBounded(t *testing.T) {
	var sink testlog.Memory
	r := newNetRun(&sink)
	for i := range 5 * maxConnections {
		r.Connection(plan.Connection{Protocol: "tcp", Name: fmt.Sprintf("h%d.example", i), Port: 443})
	}
	if err := r.endConnections(); err != nil {
		t.Fatal(err)
	}
	got := sink.Events()
	if len(got) > 2*maxConnections+1 {
		t.Errorf("%d events", len(got))
	}
	if c := got[len(got)-1].Connection; c.Count != 5*maxConnections-len(got)+1 || c.Refused != c.Count {
		t.Errorf("the rest is %+v", c)
	}
}

type brokenSink struct{ calls int }

func (s *brokenSink) Record(audit.Event) error {
	s.calls++
	return errors.New("no space left")
}

// W8: connections that could not be recorded are an error of the run.
func TestConnectionLogFails(t *testing.T) {
	sink := &brokenSink{}
	r := newNetRun(sink)
	for range 10 {
		r.Connection(plan.Connection{Protocol: "tcp", Allowed: true})
	}
	if err := r.End(Outcome{}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if sink.calls != 2 { // the first connection, and the end
		t.Errorf("%d calls", sink.calls)
	}
}

type closing func() error

func (f closing) Close() error { return f() }

// N3: the record of a wrapped command is complete when its network has ended.
func TestWrappedConnections(t *testing.T) {
	var sink testlog.Memory
	r := newNetRun(&sink)
	if r.EndingWith(nil) != nil {
		t.Error("a network where there is none")
	}
	made, err := r.EndingWith(func(*os.File) (io.Closer, error) {
		return closing(func() error {
			r.Connection(plan.Connection{Protocol: "tcp", Allowed: true}) // one that ends with the network
			return nil
		}), nil
	})(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range maxConnections {
		r.Connection(plan.Connection{Protocol: "tcp", Allowed: true})
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	got := sink.Events()
	if n := len(got); n != maxConnections+1 || got[n-1].Connection.Count != 1 {
		t.Errorf("%d events, the last of %+v", n, got[len(got)-1].Connection)
	}
	failing := errors.New("no network")
	if _, err := r.EndingWith(func(*os.File) (io.Closer, error) { return nil, failing })(nil); !errors.Is(err, failing) {
		t.Errorf("got %v", err)
	}
}
