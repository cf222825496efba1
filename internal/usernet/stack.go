//go:build linux

package usernet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nicID = 1
	// timeWait is how long a closed connection is remembered. During that time the stack
	// accepts no new connection with the same ports, although the kernel inside may choose
	// them at once. It can be short, because old segments cannot arrive late on this link.
	timeWait = 5 * time.Millisecond
	// closeGrace is how long Close waits for connections whose programs have ended: their
	// last data may still be on its way.
	closeGrace = 100 * time.Millisecond
	// closeLimit bounds how long Close waits for relays to end.
	closeLimit = 3 * time.Second
)

// A Stack carries the traffic of one sandbox.
type Stack struct {
	net      *stack.Stack
	link     *endpoint
	gate     Gate
	gateways []netip.Addr
	notice   func(string)
	grace    time.Duration // closeGrace, but for tests

	ctx    context.Context // ends with the stack
	cancel context.CancelFunc

	forwarder *tcp.Forwarder
	conns     conns
	flows     flows
	pings     pings

	mu      sync.Mutex
	closing bool
	work    sync.WaitGroup // all goroutines that use the gate
	done    chan struct{}  // closed when the link has ended
}

// Start carries the traffic of the link through the gate until Close, or until the link
// fails because its namespace is gone. It takes over the link's file, even if it
// returns an error. notice, if not nil, receives messages for the user.
func Start(link Link, gate Gate, notice func(string)) (s *Stack, err error) {
	defer func() {
		if err != nil && link.File != nil {
			link.File.Close()
		}
	}()
	if err := link.check(); err != nil {
		return nil, err
	}
	e, err := newEndpoint(&link)
	if err != nil {
		return nil, err
	}
	return startWith(e, gate, link.Gateways, notice)
}

func startWith(e *endpoint, gate Gate, gateways []netip.Addr, notice func(string)) (*Stack, error) {
	if notice == nil {
		notice = func(string) {}
	}
	s := &Stack{link: e, gate: gate, gateways: slices.Clone(gateways), notice: notice, grace: closeGrace, done: make(chan struct{})}
	s.conns.pending = map[stack.TransportEndpointID]uint32{}
	e.opening = s.conns.isPending
	s.flows.all = map[pair]*flow{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.build(); err != nil {
		s.cancel()
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = e.readAll()
	}()
	return s, nil
}

// build makes the TCP/IP stack. It accepts packets for every address and answers from
// every address.
func (s *Stack) build() error {
	s.net = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		RandSource:         cheapRandom{},
	})
	if err := configureTCP(s.net); err != nil {
		return fmt.Errorf("user-mode network: set up TCP: %w", err)
	}
	if err := s.net.CreateNIC(nicID, s.link); err != nil {
		return fmt.Errorf("user-mode network: attach the link: %s", err)
	}
	err := errors.Join(asError(s.net.SetPromiscuousMode(nicID, true)), asError(s.net.SetSpoofing(nicID, true)))
	if err != nil {
		return fmt.Errorf("user-mode network: set up the link: %w", err)
	}
	s.net.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID},
	})
	s.forwarder = s.newForwarder(maxBuffer, maxPending)
	s.net.SetTransportProtocolHandler(tcp.ProtocolNumber, s.handleTCP)
	s.net.SetTransportProtocolHandler(udp.ProtocolNumber, s.forwardUDP)
	s.net.SetTransportProtocolHandler(icmp.ProtocolNumber4, s.forwardPing)
	s.net.SetTransportProtocolHandler(icmp.ProtocolNumber6, s.forwardPing)
	return nil
}

// Close ends all connections and waits for everything to end. Connections that are
// being closed get a short time to finish.
func (s *Stack) Close() {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	s.mu.Unlock()
	if again {
		<-s.done
		return
	}
	s.drain()
	s.cancel()
	s.net.Close() // resets all connections
	s.link.Close()
	<-s.done
	s.net.Wait()
	waitFor(&s.work, closeLimit)
}

// drain waits for connections that are being closed.
func (s *Stack) drain() {
	for until := time.Now().Add(s.grace); !s.conns.idle() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

// enter registers a goroutine that Close waits for. It reports whether the stack is
// still open.
func (s *Stack) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.work.Add(1)
	return true
}

func (s *Stack) isGateway(a netip.Addr) bool { return slices.Contains(s.gateways, a) }

// waitFor waits for the group, up to a limit.
func waitFor(group *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// addrPort converts an address of the stack.
func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(addrOf(a), port)
}

func addrOf(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}

func addressOf(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func asError(err tcpip.Error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.String())
}

// A Gate decides what may leave the sandbox, and opens it on the host. Its methods are
// called concurrently; the context ends with the [Stack]. A nil Refusal means that it
// was opened or allowed.
type Gate interface {
	// OpenTCP checks a connection and opens it.
	OpenTCP(ctx context.Context, client, dst netip.AddrPort) (Flow, Refusal)
	// OpenUDP checks a flow of datagrams and opens a connected socket for it.
	OpenUDP(ctx context.Context, client, dst netip.AddrPort) (net.Conn, Refusal)
	// Ping checks an echo request; the stack sends it.
	Ping(ctx context.Context, client, dst netip.Addr) Refusal
}

// A Flow is an open connection of the host.
type Flow interface {
	// Relay copies both ways until both are done, and closes both ends. The client
	// also has the methods CloseRead, CloseWrite and SetLinger of a net.TCPConn.
	Relay(client net.Conn)
	// Close ends a flow that was not relayed.
	Close() error
}

// A Refusal says why something was not opened.
type Refusal interface {
	// Answers reports whether a TCP client should be connected anyway, so that Serve can
	// explain the refusal in the client's protocol.
	Answers() bool
	// Serve explains the refusal to a connected client and closes the connection.
	Serve(client net.Conn)
	// Close ends a refusal for which Answers is true and that was not served.
	Close() error
	// Err returns why an allowed connection failed. It is nil if a rule refused the
	// connection.
	Err() error
}
