package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
)

// A Config has the functions that a gate calls. All of them are called concurrently.
type Config struct {
	// Judge returns the rules in force; they may change while the sandbox
	// runs. Required.
	Judge func() *judge.Network
	// Resolve returns the addresses of a name, and how long they are valid. Nil: it is
	// resolved as on the host.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, time.Duration, error)
	// Exchange sends a DNS query to a name server and returns its answer, for
	// records other than addresses. Nil: the servers of the host's resolv.conf.
	Exchange func(ctx context.Context, query []byte) ([]byte, error)
	// Dial connects to an address that was allowed. network is "tcp" or "udp", and address
	// is never a name. Nil: it connects from the host.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Owner returns the process that has the socket with these two ends, as seen inside, or
	// 0 and "" if it is unknown. Optional.
	Owner func(protocol string, local, remote netip.AddrPort) (pid int, program string)
	// Given and Ask, unless nil, ask a person about a TCP connection that a rule refuses.
	// Given returns the rules with the earlier grants to the process's command, or nil if
	// there are none, and whether a person may be asked for more. Ask waits for the answer,
	// or until ctx ends because the client is gone. It returns the rules by which the
	// connection is checked again; nil means no.
	Given func(plan.Denial) (rules *judge.Network, ask bool)
	Ask   func(context.Context, plan.Denial) *judge.Network
	// Connection receives the record of every connection when it ends, Denied every denial.
	// Optional.
	Connection func(plan.Connection)
	Denied     func(plan.Denial)
	// Begun, unless nil, is called before each connection is made. The track that it
	// returns receives the record instead of Connection. end ends the connection, after a
	// short time for data that the client has sent. It may be called at any time and by any
	// goroutine, and does not wait for the record. Pings are not tracked: their record is
	// written at once.
	Begun func(end func()) Track
	// Inspector ends the TLS of connections that the rules want inspected. Nil: nothing can
	// look inside, and what only rules about requests allow is denied.
	Inspector inspection.Inspector
	// HostAddrs returns the host's own addresses, which count as private. Nil:
	// those of its interfaces.
	HostAddrs func() []netip.Addr
}

// limits bound the resources of one sandbox.
type limits struct {
	tcp, udp   int           // connections at once
	queries    int           // DNS queries in flight
	dnsConns   int           // connections to the DNS server at once
	proxyConns int           // connections to the proxy at once
	dial       time.Duration // for connecting to the server
	first      time.Duration // for the rest of the first message, once it has begun
	line       time.Duration // for the rest of a first line that may be HTTP
	idle       time.Duration // between two requests to the proxy, or DNS queries
	linger     time.Duration // for the client to read a refusal
}

func defaultLimits() limits {
	return limits{
		tcp: 2048, udp: 1024, queries: 128, dnsConns: 64, proxyConns: 2048,
		dial: 30 * time.Second, first: 15 * time.Second, line: time.Second,
		idle: 2 * time.Minute, linger: time.Second,
	}
}

// A Gate checks, makes and records the connections of one sandbox. It is safe for
// concurrent use.
type Gate struct {
	config Config
	limits limits
	names  names
	holes  sinkholes
	cache  lookups
	pings  pings
	own    ownAddrs
	// quicMemory is the memory of the QUIC guards, in bytes.
	quicMemory atomic.Int64
	// tcp, udp, queries, dnsConns and proxyConns are semaphores: each has as many places as
	// its limit.
	tcp, udp, queries, dnsConns, proxyConns chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	live   map[io.Closer]struct{} // nil once the gate is closed
	work   sync.WaitGroup
}

// New returns a gate. The caller has to close it.
func New(config Config) *Gate { return newGate(config, defaultLimits()) }

func newGate(config Config, l limits) *Gate {
	if config.Resolve == nil {
		config.Resolve = hostResolve
	}
	if config.Exchange == nil {
		config.Exchange = hostExchange
	}
	if config.Dial == nil {
		config.Dial = new(net.Dialer).DialContext
	}
	if config.HostAddrs == nil {
		config.HostAddrs = interfaceAddrs
	}
	g := &Gate{
		config: config, limits: l, live: map[io.Closer]struct{}{},
		tcp: make(chan struct{}, l.tcp), udp: make(chan struct{}, l.udp), queries: make(chan struct{}, l.queries),
		dnsConns: make(chan struct{}, l.dnsConns), proxyConns: make(chan struct{}, l.proxyConns),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Close ends all connections and listeners of the gate, and returns when their records
// are written. A closed gate refuses everything.
func (g *Gate) Close() error {
	g.mu.Lock()
	live := g.live
	g.live = nil
	g.mu.Unlock()
	g.cancel()
	for c := range live {
		c.Close()
	}
	g.work.Wait()
	return nil
}

// begin registers work: Close ends it by closing c, and waits until end is called. If the
// gate is already closed, begin closes c and reports false.
func (g *Gate) begin(c io.Closer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		c.Close()
		return false
	}
	g.live[c] = struct{}{}
	g.work.Add(1)
	return true
}

// end undoes begin. It does not close c.
func (g *Gate) end(c io.Closer) {
	g.mu.Lock()
	delete(g.live, c)
	g.mu.Unlock()
	g.work.Done()
}

// accept calls serve for each connection, and has at most as many open as there are
// places. It closes the listener.
func (g *Gate) accept(l net.Listener, places chan struct{}, serve func(net.Conn)) {
	if !g.begin(l) {
		return
	}
	defer g.end(l)
	defer shut(l)
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || g.ctx.Err() != nil {
				return
			}
			// There are no more descriptors, or the client is already gone.
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if !take(places) {
			reset(conn)
			continue
		}
		if !g.begin(conn) {
			give(places)
			return
		}
		go func() {
			defer give(places)
			defer g.end(conn)
			defer shut(conn)
			serve(conn)
		}()
	}
}

// isOwn reports whether an address is one of the host's own.
func (g *Gate) isOwn(addr netip.Addr) bool {
	return addr.IsValid() && slices.Contains(g.own.get(g.config.HostAddrs), addr)
}

// ownAddrs caches the host's addresses for a second: listing them takes longer than all
// other checks.
type ownAddrs struct {
	mu    sync.Mutex
	addrs []netip.Addr
	until time.Time
}

func (o *ownAddrs) get(ask func() []netip.Addr) []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.until) {
		o.addrs, o.until = ask(), now.Add(time.Second)
	}
	return o.addrs
}

// take takes a place if one is free, and reports whether it did.
func take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func give(places chan struct{}) { <-places }

// interfaceAddrs returns the addresses of the host's interfaces.
func interfaceAddrs() []netip.Addr {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs
}
