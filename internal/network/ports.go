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
	// Owner is the process that has the socket with these ends, as far as that
	// can be found out. It is asked once for each connection that is recorded, if
	// that came to be.
	Owner(protocol string, local, remote netip.AddrPort) (pid int, program string)
}

// Ports are the published and forwarded ports of one sandbox. A published port
// is a listener of the host whose connections are carried to a server inside; a
// forwarded one is a listener inside whose connections are carried to the
// host's loopback. Nothing else crosses: the ports are numbers of the policy,
// never of a client.
type Ports struct {
	publish []*published
	forward []plan.Port

	inside Inside
	record func(plan.Connection)
	begun  func(end func()) egress.Track // nil: nobody follows connections
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	drain  drain
	idle   time.Duration // of a UDP flow that nothing is heard of

	mu     sync.Mutex
	open   map[io.Closer]struct{}
	queues []*queue
	closed bool
}

// published is a rule with the host's socket that was bound for it.
type published struct {
	rule plan.Port
	tcp  *net.TCPListener // one of the two
	udp  *net.UDPConn
}

// Bind takes the ports on the host that a plan publishes. It is done before
// anything is started, so that a port in use is an error and not a command
// without its port. Connections wait until Serve.
func Bind(n *plan.Network) (*Ports, error) {
	p := &Ports{forward: n.Forward, open: map[io.Closer]struct{}{}, idle: udpIdle}
	p.drain.ending = make(chan struct{})
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

// errHostNetwork: with the host's network there is no other side.
var errHostNetwork = errors.New("ports are published and forwarded between the host and a network of the command's own, and with the network mode host " +
	"it has the host's: it listens and connects there itself; remove the ports, or choose --net none, loopback or user")

func (p *Ports) bind(rule plan.Port) error {
	addr, err := hostAddress(rule)
	if err != nil {
		return err
	}
	b := &published{rule: rule}
	if rule.Protocol == policy.ProtocolUDP {
		b.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	} else {
		b.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	}
	if err != nil {
		return err
	}
	b.rule.Address, b.rule.Host = addr.Addr().String(), b.port()
	p.publish = append(p.publish, b)
	p.keep(b.closer())
	return nil
}

// hostAddress is where a published port listens.
func hostAddress(rule plan.Port) (netip.AddrPort, error) {
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if rule.Address != "" {
		var err error
		if addr, err = netip.ParseAddr(rule.Address); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(addr, uint16(rule.Host)), nil
}

func (b *published) port() int {
	if b.udp != nil {
		return b.udp.LocalAddr().(*net.UDPAddr).Port
	}
	return b.tcp.Addr().(*net.TCPAddr).Port
}

func (b *published) closer() io.Closer {
	if b.udp != nil {
		return b.udp
	}
	return b.tcp
}

// Published returns the published ports as they are: with the host's address
// and the port that was taken where the policy leaves the choice.
func (p *Ports) Published() []plan.Port {
	list := make([]plan.Port, len(p.publish))
	for i, b := range p.publish {
		list[i] = b.rule
	}
	return list
}

// Serve makes the listeners inside and carries connections from now on. Each is
// given to record when it ends, unless somebody follows it; record may be called
// by many goroutines at once.
// If Serve fails, the ports have to be closed all the same.
func (p *Ports) Serve(inside Inside, record func(plan.Connection)) error {
	p.inside, p.record = inside, record
	for _, rule := range p.forward {
		if err := p.serveForward(rule); err != nil {
			return &PortError{Rule: ruleForward, Port: rule, Err: err}
		}
	}
	for _, b := range p.publish {
		if b.udp != nil {
			p.carryUDP(b.udp, p.publishedFlow(b.rule))
		} else {
			p.carryTCP(&queue{listener: b.tcp}, rulePublish, b.rule, func(c *passage, client *net.TCPConn) { servePublished(c, b.rule.Inside, client) })
		}
	}
	return nil
}

// loopbacks are the addresses of a loopback, in the order in which they are
// tried.
func loopbacks(port int) []netip.AddrPort {
	return []netip.AddrPort{
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)),
		netip.AddrPortFrom(netip.IPv6Loopback(), uint16(port)),
	}
}

// serveForward listens inside, on both loopbacks. A kernel without IPv6 has no
// second one.
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
	if rule.Protocol == policy.ProtocolUDP {
		l, err := p.inside.ListenUDP(addr)
		if err == nil {
			p.keep(l)
			p.carryUDP(l, p.forwardedFlow(rule, addr))
		}
		return err
	}
	l, err := p.inside.ListenTCP(addr)
	if err != nil {
		return err
	}
	p.keep(l)
	q, err := p.lookAt(l)
	if err == nil {
		p.carryTCP(q, ruleForward, rule, func(c *passage, client *net.TCPConn) { serveForwarded(c, rule.Host, client) })
	}
	return err
}

// keep remembers what Close has to close. False means that it is closed already.
func (p *Ports) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

// drop closes what is done with.
func (p *Ports) drop(c io.Closer) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	c.Close()
}

// Close ends all connections and gives the ports back. What the command has sent
// before it ended still arrives, if that does not take long. When Close returns,
// every connection is recorded.
func (p *Ports) Close() error {
	p.Settle()
	p.drain.finish()
	p.cancel()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	clear(p.open)
	p.mu.Unlock()
	p.work.Wait()
	return nil
}

// Unpublish gives the host's ports back, so that they can be published by another
// sandbox. TCP connections that are open go on.
func (p *Ports) Unpublish() {
	for _, b := range p.publish {
		p.drop(b.closer())
	}
}

// A PortError is a port that could not be had.
type PortError struct {
	// Rule is network.publish or network.forward.
	Rule string
	Port plan.Port
	Err  error
}

// Error says what stands in the way and what to do.
func (e *PortError) Error() string {
	text := e.Rule + " " + e.Port.String() + ": "
	if e.Rule == ruleForward {
		if errors.Is(e.Err, syscall.EADDRINUSE) {
			return text + fmt.Sprintf("port %d is taken inside by cloche itself or by another rule; choose another one inside: --forward %d:%d",
				e.Port.Inside, e.Port.Host, otherPort(e.Port.Inside))
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

// Unwrap returns the reason.
func (e *PortError) Unwrap() error { return e.Err }

// otherPort proposes a port that is probably free.
func otherPort(port int) int {
	if port < 10000 {
		return port + 10000
	}
	return port - 1
}
