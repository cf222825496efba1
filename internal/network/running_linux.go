package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/internal/usernet"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// errOwn is the error for the machine's own network, which must not be set up.
var errOwn = errors.New("the sandbox has no network namespace of its own, so no network is made in it")

// Start makes the network in a namespace. The file stays the caller's. If Start fails,
// it leaves nothing behind and releases the ports.
func Start(file *os.File, c Config) (*Running, error) {
	r := &Running{}
	if err := r.start(file, &c); err != nil {
		_ = r.Close() // only the first error matters
		return nil, err
	}
	return r, nil
}

func (r *Running) start(file *os.File, c *Config) error {
	inside, err := netns.Open(file)
	if err == nil {
		r.keep(inside)
	}
	if c.Ports != nil {
		r.keep(c.Ports)
	}
	if err != nil {
		return err
	}
	if inside.Own() {
		return errOwn
	}
	if publishesLowPort(c.Network) {
		inside.Prepare(netns.Needs{LowPorts: true})
	}
	if c.Network.Mode == policy.NetworkUser {
		if err := r.connect(inside, c); err != nil {
			return err
		}
	}
	for _, name := range c.Network.Abstract {
		l, err := inside.ListenUnix(name)
		if err != nil {
			return fmt.Errorf("listen on the abstract socket @%s inside: %w", name, err)
		}
		r.keep(carryAbstract(l, name, c.record))
	}
	if c.Ports == nil {
		return nil
	}
	c.Ports.begun = c.Gate.Begun
	return c.Ports.Serve(inside, c.record)
}

// publishesLowPort reports whether a published port leads to a port inside that is
// below 1024.
func publishesLowPort(n *plan.Network) bool {
	const firstFree = 1024
	return slices.ContainsFunc(n.Publish, func(p plan.Port) bool { return p.Inside < firstFree })
}

func (c *Config) record(n plan.Connection) {
	if c.Gate.Connection != nil {
		c.Gate.Connection(n)
	}
}

// linkMTU is the MTU of the interface inside. No wire limits the size, and the largest
// packets cost the least.
const linkMTU = 65520

// connect makes the user-mode network: the gate, the name server inside, and
// the link.
func (r *Running) connect(inside *netns.Namespace, c *Config) error {
	inside.Prepare(needs(c.Network.Link))
	c.Gate.Judge, c.Gate.Owner = sync.OnceValue(func() *judge.Network { return judge.NewNetwork(c.Network) }), inside.Owner
	gate := egress.New(c.Gate)
	r.keep(gate)
	if err := r.serveNames(inside, gate); err != nil {
		return err
	}
	if c.Network.Link == policy.LinkProxy {
		return r.serveProxy(inside, gate)
	}
	link, err := makeLink(inside, c.Network.Link)
	if err != nil {
		return err
	}
	stack, err := usernet.Start(link, userGate{gate}, c.Notice)
	if err != nil {
		return err
	}
	r.keep(closeFunc(stack.Close))
	return nil
}

// A userGate is a gate that returns a nil interface, and not a nil pointer in an
// interface, if there is no refusal.
type userGate struct{ gate *egress.Gate }

func (g userGate) OpenTCP(ctx context.Context, client, dst netip.AddrPort) (usernet.Flow, usernet.Refusal) {
	flow, refusal := g.gate.OpenTCP(ctx, client, dst)
	return flow, orNil(refusal)
}

func (g userGate) OpenUDP(ctx context.Context, client, dst netip.AddrPort) (net.Conn, usernet.Refusal) {
	conn, refusal := g.gate.OpenUDP(ctx, client, dst)
	return conn, orNil(refusal)
}

func (g userGate) Ping(ctx context.Context, client, dst netip.Addr) usernet.Refusal {
	return orNil(g.gate.Ping(ctx, client, dst))
}

func orNil(r *egress.Refusal) usernet.Refusal {
	if r == nil {
		return nil
	}
	return r
}

// needs returns the sockets that the network needs.
func needs(link policy.Link) netns.Needs {
	n := netns.Needs{Link: link, TCP: 1, UDP: 1, Owners: true, Ping: true}
	if link == policy.LinkProxy {
		n.TCP, n.Ping = 2, false
	}
	return n
}

// serveNames starts the name server of the sandbox.
func (r *Running) serveNames(inside *netns.Namespace, gate *egress.Gate) error {
	at := netip.MustParseAddrPort(wellknown.DNSAddress)
	udp, err := inside.ListenUDP(at)
	if err != nil {
		return fmt.Errorf("the name server of the sandbox: %w", err)
	}
	tcp, err := inside.ListenTCP(at)
	if err != nil {
		udp.Close()
		return fmt.Errorf("the name server of the sandbox: %w", err)
	}
	go gate.ServeDNS(udp, tcp)
	return nil
}

// serveProxy starts the proxies, for a sandbox without a link.
func (r *Running) serveProxy(inside *netns.Namespace, gate *egress.Gate) error {
	l, err := inside.ListenTCP(netip.MustParseAddrPort(wellknown.ProxyAddress))
	if err != nil {
		return fmt.Errorf("the proxy of the sandbox: %w", err)
	}
	go gate.ServeProxy(l)
	return nil
}

// makeLink makes the interface inside.
func makeLink(inside *netns.Namespace, kind policy.Link) (usernet.Link, error) {
	address4, address6 := netip.MustParsePrefix(wellknown.Address4), netip.MustParsePrefix(wellknown.Address6)
	gateways := []netip.Addr{netip.MustParseAddr(wellknown.Gateway4), netip.MustParseAddr(wellknown.Gateway6)}
	cfg := netns.LinkConfig{
		Name: wellknown.Interface, MTU: linkMTU, VNetHeader: true,
		Addresses: []netip.Prefix{address4, address6}, Gateways: gateways,
	}
	l, err := inside.MakeLink(kind, cfg)
	if err != nil {
		return usernet.Link{}, fmt.Errorf("%w; cloche doctor tells which links work here, and network.link: auto takes one of them", err)
	}
	return usernet.Link{
		File: l.File, MTU: l.MTU, Ethernet: l.Ethernet, MAC: l.Gateway[:], Peer: l.MAC[:],
		Addrs: []netip.Addr{address4.Addr(), address6.Addr()}, Gateways: gateways,
	}, nil
}
