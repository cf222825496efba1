package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const (
	// lastCall is how long a listener still accepts waiting connections at the end.
	lastCall = time.Millisecond
	// drainTime bounds the wait for data that the command sent before it ended.
	drainTime = time.Second
)

// The rules that records of ports name.
const (
	rulePublish = "network.publish"
	ruleForward = "network.forward"
)

// An Inside makes sockets in the sandbox's network namespace.
type Inside interface {
	ListenTCP(netip.AddrPort) (*net.TCPListener, error)
	ListenUDP(netip.AddrPort) (*net.UDPConn, error)
	DialTCP(context.Context, netip.AddrPort) (*net.TCPConn, error)
	DialUDP(context.Context, netip.AddrPort) (*net.UDPConn, error)
	// Owner returns the process that has the socket with these ends, if it can be found. It
	// is called once for each connection.
	Owner(protocol string, local, remote netip.AddrPort) (pid int, program string)
}

// Ports are the published and forwarded ports of one sandbox. A published port is a
// listener on the host whose connections go to a server inside. A forwarded port is a
// listener inside whose connections go to the host's loopback. The port numbers come
// from the policy, never from a client.
type Ports struct {
	publish []*published
	forward []plan.Port

	inside Inside
	record func(plan.Connection)
	begun  func(end func()) egress.Track // optional: see egress.Config
	ctx    context.Context
	cancel context.CancelFunc
	idle   time.Duration // after which a silent UDP flow ends

	closers
	queues []*queue // guarded by mu

	// When the command has ended, connections may still wait to be accepted, and data to be
	// sent. Close handles both first.
	ending    chan struct{} // closed when no new connections are waited for
	endOnce   sync.Once
	deadlines []func(time.Time) error // of the listeners; guarded by mu
	accepting sync.WaitGroup
	flushing  sync.WaitGroup // connections with data that has not left the sandbox
}

// closers are the open sockets of a service, and the goroutines that use them.
type closers struct {
	mu     sync.Mutex
	open   map[io.Closer]struct{}
	closed bool
	work   sync.WaitGroup
}

// keep remembers a socket for closeAll. If closeAll was already called, it closes the
// socket and reports false.
func (s *closers) keep(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	if s.open == nil {
		s.open = map[io.Closer]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

// drop closes a socket and forgets it.
func (s *closers) drop(c io.Closer) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	c.Close()
}

// closeAll closes all sockets and waits for their goroutines.
func (s *closers) closeAll() {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		c.Close()
	}
	clear(s.open)
	s.mu.Unlock()
	s.work.Wait()
}

// published is a rule with the host's socket that was bound for it: a *net.TCPListener
// or a *net.UDPConn.
type published struct {
	rule   plan.Port
	socket io.Closer
}

// Bind binds the ports of the host that a plan publishes. It runs before the command
// starts, so that a port in use is an error. Connections wait until Serve.
func Bind(n *plan.Network) (*Ports, error) {
	p := &Ports{forward: n.Forward, idle: udpIdle, ending: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if len(n.Publish)+len(n.Forward) > 0 && n.Mode == policy.NetworkHost {
		return nil, errHostNetwork
	}
	for _, rule := range n.Publish {
		if err := p.bind(rule); err != nil {
			_ = p.Close()
			return nil, &PortError{Rule: rulePublish, Port: rule, Err: err}
		}
	}
	return p, nil
}

var errHostNetwork = errors.New("ports are published and forwarded between the host and a network of the command's own, and with the network mode host " +
	"it has the host's: it listens and connects there itself; remove the ports, or choose --net none, loopback or user")

func (p *Ports) bind(rule plan.Port) error {
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if rule.Address != "" {
		var err error
		if addr, err = netip.ParseAddr(rule.Address); err != nil {
			return err
		}
	}
	at := netip.AddrPortFrom(addr, uint16(rule.Host))
	b := &published{rule: rule}
	b.rule.Address = addr.String()
	if rule.Protocol == "udp" {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		b.socket, b.rule.Host = c, int(egress.AddrPortOf(c.LocalAddr()).Port())
	} else {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		b.socket, b.rule.Host = l, int(egress.AddrPortOf(l.Addr()).Port())
	}
	p.publish = append(p.publish, b)
	p.keep(b.socket)
	return nil
}

// Published returns the published ports with the host's address. Where the policy
// leaves the port open, it returns the chosen one.
func (p *Ports) Published() []plan.Port {
	list := make([]plan.Port, len(p.publish))
	for i, b := range p.publish {
		list[i] = b.rule
	}
	return list
}

// Serve makes the listeners inside and starts to carry connections. It calls record for
// each one that ends, unless it is tracked (egress.Config.Begun). record is called
// concurrently. If Serve fails, the caller still has to call Close.
func (p *Ports) Serve(inside Inside, record func(plan.Connection)) error {
	p.inside, p.record = inside, record
	for _, rule := range p.forward {
		if err := p.serveForward(rule); err != nil {
			return &PortError{Rule: ruleForward, Port: rule, Err: err}
		}
	}
	for _, b := range p.publish {
		w := route{rule: rulePublish, port: b.rule, target: b.rule.Inside}
		if udp, ok := b.socket.(*net.UDPConn); ok {
			p.carryUDP(udp, w)
		} else {
			p.carryTCP(&queue{listener: b.socket.(*net.TCPListener)}, w)
		}
	}
	return nil
}

// loopbacks returns the addresses of a loopback, in the order in which they are tried.
func loopbacks(port int) []netip.AddrPort {
	return []netip.AddrPort{
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)),
		netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port)),
	}
}

// serveForward listens inside on both loopbacks. A kernel without IPv6 has only the
// first.
func (p *Ports) serveForward(rule plan.Port) error {
	for i, addr := range loopbacks(rule.Inside) {
		err := p.listenInside(rule, addr)
		if i > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Ports) listenInside(rule plan.Port, addr netip.AddrPort) error {
	w := route{rule: ruleForward, port: rule, target: rule.Host, outward: true}
	if rule.Protocol == "udp" {
		l, err := p.inside.ListenUDP(addr)
		if err == nil {
			p.keep(l)
			p.carryUDP(l, w)
		}
		return err
	}
	l, err := p.inside.ListenTCP(addr)
	if err != nil {
		return err
	}
	p.keep(l)
	q, err := p.watchQueue(l)
	if err == nil {
		p.carryTCP(q, w)
	}
	return err
}

// accept runs a loop that accepts from a listener. The loop has to end when the
// deadline passes.
func (p *Ports) accept(setDeadline func(time.Time) error, loop func()) {
	p.mu.Lock()
	p.deadlines = append(p.deadlines, setDeadline)
	p.mu.Unlock()
	p.accepting.Go(loop)
}

// Close ends all connections and releases the ports. Data that the command sent before
// it ended still arrives, within a time limit. When Close returns, every connection is
// recorded.
func (p *Ports) Close() error {
	p.Settle()
	p.drain()
	p.cancel()
	p.closeAll()
	return nil
}

// drain accepts the connections that wait at the listeners, and waits until all data
// has left the sandbox or the time is up.
func (p *Ports) drain() {
	p.endOnce.Do(func() { close(p.ending) })
	p.mu.Lock()
	for _, set := range p.deadlines {
		_ = set(time.Now().Add(lastCall)) // fails only for a closed listener
	}
	p.mu.Unlock()
	p.accepting.Wait()
	done := make(chan struct{})
	go func() {
		p.flushing.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
	}
}

// Unpublish releases the host's ports, so that another sandbox can publish them. Open
// TCP connections continue.
func (p *Ports) Unpublish() {
	for _, b := range p.publish {
		p.drop(b.socket)
	}
}

// A PortError is a port that could not be bound.
type PortError struct {
	// Rule is network.publish or network.forward.
	Rule string
	Port plan.Port
	Err  error
}

// Error says why the port could not be bound, and what to do.
func (e *PortError) Error() string {
	text := e.Rule + " " + e.Port.String() + ": "
	if e.Rule == ruleForward {
		if errors.Is(e.Err, syscall.EADDRINUSE) {
			other := e.Port
			other.Inside = otherPort(other.Inside)
			return text + fmt.Sprintf("port %d is taken inside by cloche itself or by another rule; choose another one inside: --forward %s", e.Port.Inside, other)
		}
		return text + "cannot listen inside: " + e.Err.Error()
	}
	anyPort := "--publish 0:" + strconv.Itoa(e.Port.Inside) + " takes a free one"
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		return text + fmt.Sprintf("port %d is in use on the host; stop what listens there, choose another (--publish %d:%d), or let cloche choose: %s",
			e.Port.Host, otherPort(e.Port.Host), e.Port.Inside, anyPort)
	case errors.Is(e.Err, syscall.EACCES):
		return text + fmt.Sprintf("this user may not listen on port %d of the host; choose one from 1024 on (--publish %d:%d), or let cloche choose: %s",
			e.Port.Host, otherPort(e.Port.Host), e.Port.Inside, anyPort)
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		return text + fmt.Sprintf("this machine has no address %s; name one of its own, or leave it out for 127.0.0.1", e.Port.Address)
	}
	return text + e.Err.Error()
}

// Unwrap returns the cause.
func (e *PortError) Unwrap() error { return e.Err }

// otherPort suggests a port that is probably free.
func otherPort(port int) int {
	if port < 10000 {
		return port + 10000
	}
	return port - 1
}
