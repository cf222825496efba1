package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// datagrams is a UDP connection that counts its bytes and writes its record when it is
// closed.
type datagrams struct {
	net.Conn
	attempt *attempt
	once    sync.Once
	guard   *quicGuard // nil: any server is allowed

	mu      sync.Mutex // guards the fields below, and the record
	refused bool
	failed  error
}

func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	d.attempt.received.Add(int64(n))
	d.note(err)
	return n, err
}

func (d *datagrams) Write(b []byte) (int, error) {
	if d.guard != nil && len(b) > 0 && b[0]&0x80 != 0 {
		return d.writeGuarded(b)
	}
	return d.send(b)
}

func (d *datagrams) send(b []byte) (int, error) {
	n, err := d.Conn.Write(b)
	d.attempt.sent.Add(int64(n))
	d.note(err)
	return n, err
}

// writeGuarded checks a datagram that may be a first packet of QUIC, and sends it. After a
// refusal the flow is over.
func (d *datagrams) writeGuarded(b []byte) (int, error) {
	ready, err := d.guard.pass(b)
	if err != nil {
		d.refuse(err)
		return 0, errDatagram
	}
	for _, datagram := range ready {
		if _, err := d.send(datagram); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// note remembers the error of the connection. A timeout or a close is not an error.
func (d *datagrams) note(err error) {
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed = err
	}
}

// Close ends the flow. It may be called more than once.
func (d *datagrams) Close() error {
	err := d.Conn.Close()
	d.once.Do(func() {
		if d.guard != nil {
			d.guard.close()
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.attempt.finish(d.failed)
		give(d.attempt.gate.udp)
		d.attempt.gate.end(d.Conn)
	})
	return err
}

const (
	// maxPings bounds the destinations whose verdict is kept.
	maxPings = 1024
	// keepPing is how long one record stands for all pings to a destination.
	keepPing = 10 * time.Second
)

// pings remembers recently allowed destinations, so that not every ping makes a record.
type pings struct {
	mu    sync.Mutex
	until map[[2]netip.Addr]time.Time
}

// add remembers a ping, and reports whether it has to be recorded.
func (p *pings) add(client, dst netip.Addr, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]netip.Addr{client, dst}
	fresh := !now.Before(p.until[key])
	if p.until == nil || len(p.until) >= maxPings {
		p.until = map[[2]netip.Addr]time.Time{}
	}
	p.until[key] = now.Add(keepPing)
	return fresh
}

// Ping checks an echo request. It sends nothing: if it returns nil, the caller may send
// it. The address of a refused name stays refused even if the name is allowed by now,
// because the answer would come from another address.
func (g *Gate) Ping(_ context.Context, client, dst netip.Addr) *Refusal {
	addr := dst.Unmap().WithZone("")
	c := plan.Connection{Protocol: "icmp", Direction: "out"}
	a := &attempt{gate: g, Record: NewRecord(g.ctx, c, nil, g.config.Connection, 0)}
	defer a.cancel()
	names, hole := g.names.of(addr, a.Start), g.holes.name(addr)
	if hole != "" {
		names = []string{hole}
	}
	a.to(names, addr, 0)
	v := a.judge().Connect(a.dest)
	if !v.Allowed && hole != "" {
		a.to(names, netip.Addr{}, 0)
		if v = a.judge().Connect(a.dest); v.Allowed {
			return a.fail(errStale)
		}
	}
	switch {
	case !v.Allowed:
		return a.refuse(&v)
	case g.pings.add(client, addr, a.Start):
		a.judged(&v)
		a.finish(nil)
	}
	return nil
}

const errStale = failure("the name was refused when it was looked up, and is allowed by now: look it up again")
