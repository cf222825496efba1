package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// OpenTCP judges a connection from client to dst by the names that led to dst, and
// makes it. Exactly one of the results is nil. dst may be an address that
// stands for a refused name: if the name is allowed by now, the connection is
// made to where the name leads. Where somebody can be asked about what is refused,
// the refusal asks once it serves the client.
func (g *Gate) OpenTCP(ctx context.Context, client, dst netip.AddrPort) (*Flow, *Refusal) {
	return g.openAddr(ctx, g.attempt("tcp", client, dst), dst)
}

// OpenName is OpenTCP for a client that names the host, as those of proxies do.
// The name may be an address. via is where the client connected to.
func (g *Gate) OpenName(ctx context.Context, client, via netip.AddrPort, name string, port int) (*Flow, *Refusal) {
	a := g.attempt("tcp", client, via)
	if addr, ok := parseAddr(name); ok {
		return g.openAddr(ctx, a, netip.AddrPortFrom(addr, uint16(port)))
	}
	return g.openName(ctx, a, name, port)
}

func (g *Gate) openAddr(ctx context.Context, a *attempt, dst netip.AddrPort) (*Flow, *Refusal) {
	return a.open(func() (*Flow, *Refusal) { return a.flow(g.connect(ctx, a, dst)) })
}

func (g *Gate) openName(ctx context.Context, a *attempt, name string, port int) (*Flow, *Refusal) {
	return a.open(func() (*Flow, *Refusal) { return a.flow(g.connectName(ctx, a, name, port)) })
}

// flow makes a flow of what connect and connectName return.
func (a *attempt) flow(conn net.Conn, v plan.NetVerdict, refusal *Refusal) (*Flow, *Refusal) {
	if refusal != nil {
		return nil, refusal
	}
	a.awaitOwner() // the client has no connection before this, so its process is still there
	f := &Flow{attempt: a, verdict: v, upstream: conn}
	if !a.gate.begin(conn) {
		give(a.gate.tcp)
		return nil, a.fail(errClosed)
	}
	context.AfterFunc(a.ctx, func() { shut(conn) })
	return f, nil
}

// OpenUDP judges and makes a flow of datagrams. The record is written when the
// connection is closed.
func (g *Gate) OpenUDP(ctx context.Context, client, dst netip.AddrPort) (net.Conn, *Refusal) {
	a := g.attempt("udp", client, dst)
	conn, _, refusal := g.connect(ctx, a, dst)
	if refusal != nil {
		return nil, refusal
	}
	if !g.begin(conn) {
		give(g.udp)
		return nil, a.fail(errClosed)
	}
	d := &datagrams{Conn: conn, attempt: a, guard: a.guardQUIC()}
	context.AfterFunc(a.ctx, func() { shut(d) })
	return d, nil
}

// connect judges and dials an address. On success a place is taken, which whoever
// closes the connection gives back.
func (g *Gate) connect(ctx context.Context, a *attempt, dst netip.AddrPort) (net.Conn, plan.NetVerdict, *Refusal) {
	addr := dst.Addr().Unmap().WithZone("")
	if inSinkhole(addr) {
		if name := g.holes.name(addr); name != "" {
			return g.connectName(ctx, a, name, int(dst.Port()))
		}
	}
	a.to(g.names.of(addr, time.Now()), addr, int(dst.Port()))
	v := a.judge().Connect(a.dest)
	if !v.Allowed {
		return nil, v, a.refuse(plan.OpConnect, &v)
	}
	a.judged(&v)
	conn, err := g.dial(ctx, a, []netip.Addr{addr})
	if err != nil {
		return nil, v, a.fail(err)
	}
	return conn, v, nil
}

// connectName resolves a name, judges each address that it leads to, and dials
// those that are allowed: the very addresses, so that a second answer of the
// name server changes nothing.
func (g *Gate) connectName(ctx context.Context, a *attempt, name string, port int) (net.Conn, plan.NetVerdict, *Refusal) {
	if normal, ok := plan.NormalName(name); ok {
		name = normal
	}
	a.to([]string{name}, netip.Addr{}, port)
	judge := a.judge()
	v := judge.Connect(a.dest)
	if !v.Allowed {
		return nil, v, a.refuse(plan.OpConnect, &v)
	}
	a.judged(&v)
	looking, stop := a.bound(ctx)
	found, _, err := g.lookUp(looking, name)
	stop()
	if err != nil {
		return nil, v, a.fail(err)
	}
	v, allowed := g.judgeAll(judge, a, found)
	if len(allowed) == 0 {
		return nil, v, a.refuse(plan.OpConnect, &v)
	}
	a.judged(&v)
	conn, err := g.dial(ctx, a, allowed)
	if err != nil {
		return nil, v, a.fail(err)
	}
	// Its own address decides what may be asked for on it.
	return conn, judge.Connect(a.dest), nil
}

// judgeAll judges the addresses of a name, and returns those that are allowed, with a
// verdict about one of them; otherwise the verdict that refuses the first.
func (g *Gate) judgeAll(judge *plan.NetJudge, a *attempt, found []netip.Addr) (plan.NetVerdict, []netip.Addr) {
	var allowed []netip.Addr
	var refusal, verdict plan.NetVerdict
	names, port := a.dest.Names, a.dest.Port
	for _, addr := range found {
		a.to(names, addr, port)
		switch v := judge.Connect(a.dest); {
		case v.Allowed:
			verdict, allowed = v, append(allowed, addr)
		case refusal.Rule == "":
			refusal = v
		}
	}
	if len(allowed) == 0 {
		a.to(names, found[0], port)
		return refusal, nil
	}
	a.to(names, allowed[0], port)
	return verdict, allowed
}

const (
	errClosed = refused("the sandbox has ended")
	errLimit  = refused("too many connections at once")
)

// A failure is an error that is nothing but a text: it costs nothing until it
// happens.
type failure string

func (f failure) Error() string { return string(f) }

// A refused error is seen by clients as a connection that nobody accepts.
type refused string

func (r refused) Error() string { return string(r) }

func (r refused) Unwrap() error { return syscall.ECONNREFUSED }

// dial reaches the first of the addresses that answers, within the limit of
// time and number, and notes which.
func (g *Gate) dial(ctx context.Context, a *attempt, addrs []netip.Addr) (net.Conn, error) {
	places := g.tcp
	if a.conn.Protocol == "udp" {
		places = g.udp
	}
	if !take(places) {
		return nil, errLimit
	}
	conn, err := g.dialEach(ctx, a, addrs)
	if err != nil {
		give(places)
	}
	return conn, err
}

func (g *Gate) dialEach(ctx context.Context, a *attempt, addrs []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.limits.dial)
	defer cancel()
	ctx, stop := a.bound(ctx)
	defer stop()
	var first error
	for i, addr := range addrs {
		conn, err := g.dialOne(ctx, a, addr, len(addrs)-i)
		if err == nil {
			a.to(a.dest.Names, addr, a.dest.Port)
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// dialOne gives one of several addresses its share of the time that is left.
func (g *Gate) dialOne(ctx context.Context, a *attempt, addr netip.Addr, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share, cancel := context.WithTimeout(ctx, max(time.Until(deadline)/time.Duration(left), 2*time.Second))
		defer cancel()
		ctx = share
	}
	conn, err := g.config.Dial(ctx, a.conn.Protocol, netip.AddrPortFrom(addr, uint16(a.dest.Port)).String())
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, syscall.ETIMEDOUT
	}
	return conn, err
}

// inTurn puts the addresses of both families in turn, as the first of each is
// the most likely to answer.
func inTurn(addrs []netip.Addr) []netip.Addr {
	var four, six []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	var mixed []netip.Addr
	for i := range max(len(four), len(six)) {
		mixed = append(mixed, four[min(i, len(four)):min(i+1, len(four))]...)
		mixed = append(mixed, six[min(i, len(six)):min(i+1, len(six))]...)
	}
	return slices.Clip(mixed)
}
