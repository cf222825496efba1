package egress

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// An attempt is one connection that the gate checks and makes.
type attempt struct {
	*Record
	gate *Gate
	dest judge.Dest
	// rules, unless nil, apply to this attempt instead of the gate's: the gate's rules and
	// what was granted for the attempt.
	rules *judge.Network
	// asked says that a person was asked about it.
	asked bool
}

const (
	// lastWords bounds the wait for data that the client sent before it ended.
	lastWords = 200 * time.Millisecond
	// lastDatagrams is the same for datagrams, where the end cannot be seen.
	lastDatagrams = 20 * time.Millisecond
)

// attempt begins an attempt and its record. client and via are the two ends of the
// client's socket.
func (g *Gate) attempt(protocol string, client, via netip.AddrPort) *attempt {
	grace := lastWords
	if protocol == "udp" {
		grace = lastDatagrams
	}
	c := plan.Connection{Protocol: protocol, Direction: "out"}
	a := &attempt{gate: g, Record: NewRecord(g.ctx, c, g.config.Begun, g.config.Connection, grace)}
	if g.config.Owner != nil {
		a.FindOwner(g.config.Owner, client, via)
	}
	return a
}

// bound returns a context that also ends with the attempt.
func (a *attempt) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.Ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// to records the destination of the attempt.
func (a *attempt) to(names []string, addr netip.Addr, port int) {
	a.dest = judge.Dest{Protocol: a.Protocol, Names: names, Addr: addr, Port: port, Own: a.gate.isOwn(addr)}
	a.Addr, a.Port = addr, port
	if len(names) > 0 {
		a.Name = names[0]
	}
}

// judge returns the rules that apply to this attempt.
func (a *attempt) judge() *judge.Network {
	if a.rules != nil {
		return a.rules
	}
	return a.gate.config.Judge()
}

// judged records the decision about the attempt.
func (a *attempt) judged(v *judge.NetDecision) {
	a.Allowed, a.Rule, a.Subject = v.Allowed, v.Rule, v.Subject
	if v.Name != "" {
		a.Name = v.Name
	}
}

// finish writes the record. err is why the connection failed, or nil.
func (a *attempt) finish(err error) {
	failure := ""
	if err != nil {
		failure = cause(err)
	}
	a.Finish(failure)
}

// deny reports a denial. The record of the connection is written when it ends. The
// server name that the client sent may differ from the name that it connected to.
func (a *attempt) deny(refused *denied) plan.Denial {
	a.judged(&refused.verdict)
	d := a.denial(refused)
	if tell := a.gate.config.Denied; tell != nil {
		tell(d)
	}
	return d
}

// denial returns a refusal as a denial for the report.
func (a *attempt) denial(refused *denied) plan.Denial {
	a.AwaitOwner()
	dest := a.dest
	if refused.server != "" {
		dest.Names = []string{clip(refused.server, maxName)}
	}
	if refused.tls {
		dest.Protocol = policy.HTTPS
	}
	d := refused.verdict.Denial(refused.op, dest, clip(refused.method, maxMethod), clip(refused.path, maxPath))
	d.Pid, d.Program = a.Pid, a.Program
	return d
}

// maxPath bounds the path in a denial. Servers accept paths only a few times that long.
const maxPath = 2 << 10

// maxName bounds the host in a denial. No host name is that long.
const maxName = 256

// clip shortens a text from the client to n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "..."
}

// cause returns the text of an error without the addresses that system errors include.
func cause(err error) string {
	var own refused
	var no syscall.Errno
	if errors.As(err, &no) && !errors.As(err, &own) {
		return no.Error()
	}
	return err.Error()
}

// OpenTCP checks a connection from client to dst by the names that led to dst, and makes
// it. Exactly one of the results is nil. dst may be the address of a refused name; if
// the name is allowed by now, the connection is made to the name's real address. If a
// person can be asked about a refusal, Refusal.Serve does so.
func (g *Gate) OpenTCP(ctx context.Context, client, dst netip.AddrPort) (*Flow, *Refusal) {
	a := g.attempt("tcp", client, dst)
	return a.open(func() (net.Conn, judge.NetDecision, *Refusal) { return g.connect(ctx, a, dst) })
}

// OpenName is OpenTCP for a client that names the host, as clients of proxies do. The
// name may be an address. via is the address that the client connected to.
func (g *Gate) OpenName(ctx context.Context, client, via netip.AddrPort, name string, port int) (*Flow, *Refusal) {
	a := g.attempt("tcp", client, via)
	return a.open(func() (net.Conn, judge.NetDecision, *Refusal) {
		if addr, ok := parseAddr(name); ok {
			return g.connect(ctx, a, netip.AddrPortFrom(addr, uint16(port)))
		}
		return g.connectName(ctx, a, name, port)
	})
}

// flow makes a flow of a connection.
func (a *attempt) flow(conn net.Conn, v judge.NetDecision) (*Flow, *Refusal) {
	a.AwaitOwner() // the client has no connection yet, so its process still exists
	if !a.gate.begin(conn) {
		give(a.gate.tcp)
		return nil, a.fail(errClosed)
	}
	context.AfterFunc(a.Ctx, func() { shut(conn) })
	return &Flow{attempt: a, verdict: v, upstream: conn}, nil
}

// OpenUDP checks and makes a flow of datagrams. The record is written when the
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
	d := &datagrams{Conn: conn, attempt: a}
	if !a.judge().AnyServer(a.dest) {
		d.guard = &quicGuard{total: &g.quicMemory, judge: a.judgeUninspected}
	}
	context.AfterFunc(a.Ctx, func() { shut(d) })
	return d, nil
}

// connect checks and dials an address. On success it has taken a place in g.tcp or
// g.udp; the code that closes the connection releases it.
func (g *Gate) connect(ctx context.Context, a *attempt, dst netip.AddrPort) (net.Conn, judge.NetDecision, *Refusal) {
	addr := dst.Addr().Unmap().WithZone("")
	if name := g.holes.name(addr); name != "" {
		return g.connectName(ctx, a, name, int(dst.Port()))
	}
	a.to(g.names.of(addr, time.Now()), addr, int(dst.Port()))
	v := a.judge().Connect(a.dest)
	if !v.Allowed {
		return nil, v, a.refuse(&v)
	}
	a.judged(&v)
	conn, err := g.dial(ctx, a, []netip.Addr{addr})
	if err != nil {
		return nil, v, a.fail(err)
	}
	return conn, v, nil
}

// connectName resolves a name, checks each of its addresses, and dials those that are
// allowed. It does not resolve the name again, so a second answer of the name server
// changes nothing.
func (g *Gate) connectName(ctx context.Context, a *attempt, name string, port int) (net.Conn, judge.NetDecision, *Refusal) {
	if normal, ok := judge.NormalName(name); ok {
		name = normal
	}
	a.to([]string{name}, netip.Addr{}, port)
	rules := a.judge()
	v := rules.Connect(a.dest)
	if !v.Allowed {
		return nil, v, a.refuse(&v)
	}
	a.judged(&v)
	looking, stop := a.bound(ctx)
	found, _, err := g.lookUp(looking, name)
	stop()
	if err != nil {
		return nil, v, a.fail(err)
	}
	v, allowed := g.judgeAll(rules, a, found)
	if len(allowed) == 0 {
		return nil, v, a.refuse(&v)
	}
	a.judged(&v)
	conn, err := g.dial(ctx, a, allowed)
	if err != nil {
		return nil, v, a.fail(err)
	}
	// The address that was dialled decides what may be asked for on the connection.
	return conn, rules.Connect(a.dest), nil
}

// judgeAll checks the addresses of a name. It returns the allowed ones and the decision
// about one of them, or, if none is allowed, the decision that refuses the first.
func (g *Gate) judgeAll(rules *judge.Network, a *attempt, found []netip.Addr) (judge.NetDecision, []netip.Addr) {
	var allowed []netip.Addr
	var refusal, verdict judge.NetDecision
	names, port := a.dest.Names, a.dest.Port
	for _, addr := range found {
		a.to(names, addr, port)
		switch v := rules.Connect(a.dest); {
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

// A failure is an error whose text can be a constant.
type failure string

func (f failure) Error() string { return string(f) }

// A refused error makes clients see a connection that is refused, as if nothing
// listened.
type refused string

func (r refused) Error() string { return string(r) }

func (r refused) Unwrap() error { return syscall.ECONNREFUSED }

// dial tries the addresses one after the other until one answers, within the limits of
// time and number. It records which one did.
func (g *Gate) dial(ctx context.Context, a *attempt, addrs []netip.Addr) (net.Conn, error) {
	places := g.tcp
	if a.Protocol == "udp" {
		places = g.udp
	}
	if !take(places) {
		return nil, errLimit
	}
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
	give(places)
	return nil, first
}

// dialOne dials one of several addresses within its share of the time that is left.
func (g *Gate) dialOne(ctx context.Context, a *attempt, addr netip.Addr, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share, cancel := context.WithTimeout(ctx, max(time.Until(deadline)/time.Duration(left), 2*time.Second))
		defer cancel()
		ctx = share
	}
	conn, err := g.config.Dial(ctx, a.Protocol, netip.AddrPortFrom(addr, uint16(a.dest.Port)).String())
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, syscall.ETIMEDOUT
	}
	return conn, err
}

// inTurn alternates the addresses of both families: the first address of each family is
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

// If a person can be asked, a TCP connection that a rule refuses is accepted and waits
// for the answer. On yes, it is checked and made again, with the rules and the grant.
// Only then is the name looked up, and its addresses and the client's first bytes are
// checked. The grant applies to this attempt only; the gate's rules do not change, so
// the next command in the same sandbox does not have it.

// askable reports whether a person may be asked to allow the attempt: it is refused
// because no rule allows it. Nobody is asked about a name that leads to a private
// address, because the owner of the name chooses the address. A connection to the
// private address itself can be asked about.
func (a *attempt) askable(v *judge.NetDecision) bool {
	if a.asked || a.gate.config.Ask == nil || a.Protocol != "tcp" {
		return false
	}
	switch v.Rule {
	case judge.RuleNetworkAllow:
		return true
	case judge.RuleNetworkPrivate:
		return len(a.dest.Names) == 0 && !inSinkhole(a.dest.Addr)
	}
	return false
}

// open makes a connection with connect. If a rule refuses it, open tries again with
// earlier grants. If that is not enough, it returns a refusal that a person may be
// asked about.
func (a *attempt) open(connect func() (net.Conn, judge.NetDecision, *Refusal)) (*Flow, *Refusal) {
	try := func() (*Flow, *Refusal) {
		conn, v, refusal := connect()
		if refusal != nil {
			return nil, refusal
		}
		return a.flow(conn, v)
	}
	flow, refusal := try()
	if refusal == nil || refusal.asks == nil {
		return flow, refusal
	}
	rules, ask := a.gate.config.Given(refusal.denial)
	if rules != nil {
		a.rules = rules
		flow, refusal = try()
	}
	switch {
	case refusal == nil || refusal.asks == nil:
	case ask:
		refusal.try = try
	default:
		refusal = refusal.decline()
	}
	return flow, refusal
}

// decline answers the question with no, and records the denial.
func (r *Refusal) decline() *Refusal {
	r.asks.asked = true
	return r.asks.refuse(&r.verdict)
}

// Close ends a refusal whose client is gone before it was served.
func (r *Refusal) Close() error {
	if r.asks != nil {
		r.decline()
	}
	return nil
}

// serveDecided waits for the answer and serves the client accordingly.
func (r *Refusal) serveDecided(client net.Conn, in *bufio.Reader) {
	flow, refusal := r.decided(client, in)
	switch {
	case refusal == nil:
		flow.relay(client, takeBuffered(in))
	case refusal.explains():
		refusal.explain(client, in)
	default:
		reset(client)
	}
}

// decided waits for the answer, as long as the client does, and makes the
// connection on yes. in reads from the client.
func (r *Refusal) decided(client net.Conn, in *bufio.Reader) (*Flow, *Refusal) {
	ctx, cancel := context.WithCancel(r.asks.Ctx)
	defer cancel()
	stop := watch(client, in, cancel)
	rules := r.gate.config.Ask(ctx, r.denial)
	stop()
	if rules == nil {
		return nil, r.decline()
	}
	r.asks.asked, r.asks.rules = true, rules
	return r.try()
}

// watch calls gone when the client ends the connection. Data of the client stays in the
// buffer; while the buffer is full, the end is not noticed. stop returns when the watch
// has ended.
func watch(client net.Conn, in *bufio.Reader, gone func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in.Buffered() < in.Size() {
			if _, err := in.Peek(in.Buffered() + 1); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					gone()
				}
				return
			}
		}
	}()
	return func() {
		_ = client.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = client.SetReadDeadline(time.Time{})
	}
}
