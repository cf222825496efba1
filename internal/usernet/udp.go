//go:build linux

package usernet

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Bounds of datagrams for one sandbox.
const (
	// maxFlows is how many pairs of addresses may talk at a time. The one that
	// was silent longest makes room for another.
	maxFlows = 1024
	// flowQueue is how many datagrams of a flow may wait, and queueBudget how
	// many bytes of all flows. More are lost, as on any network.
	flowQueue   = 64
	queueBudget = 8 << 20
	// A flow ends after this time of silence: the first if there was no answer yet,
	// the second otherwise.
	idleUnanswered = 30 * time.Second
	idleAnswered   = 3 * time.Minute
	// refusedFor is how long a refusal applies to the datagrams of a flow, so that a
	// program that tries again and again does not fill the record.
	refusedFor = time.Second
)

// A pair is the addresses of a flow.
type pair struct{ client, dst netip.AddrPort }

// A flow is the datagrams between a pair of addresses.
type flow struct {
	pair
	queue    chan []byte // to the host; never closed
	stop     chan struct{}
	refused  atomic.Bool
	answered atomic.Bool
	used     atomic.Int64 // time of the last datagram of the client
	conn     net.Conn     // nil until it is open; guarded by flows.mu
	ended    bool         // guarded by flows.mu
}

// flows are the open ones.
type flows struct {
	mu     sync.Mutex
	all    map[pair]*flow
	queued atomic.Int64 // bytes
	shut   bool
}

// find returns the flow of the pair, and whether it is new. It returns nil when
// the stack is closing.
func (f *flows) find(p pair) (fl *flow, isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return nil, false
	}
	if fl := f.all[p]; fl != nil {
		return fl, false
	}
	if len(f.all) >= maxFlows {
		f.end(f.oldest())
	}
	fl = &flow{pair: p, queue: make(chan []byte, flowQueue), stop: make(chan struct{})}
	f.all[p] = fl
	return fl, true
}

func (f *flows) oldest() *flow {
	var oldest *flow
	for _, fl := range f.all {
		if oldest == nil || fl.used.Load() < oldest.used.Load() {
			oldest = fl
		}
	}
	return oldest
}

// opened gives a flow its socket. It reports whether the flow is still wanted.
func (f *flows) opened(fl *flow, conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.ended {
		return false
	}
	fl.conn = conn
	return true
}

// end forgets a flow and makes its goroutines return. The caller holds f.mu.
func (f *flows) end(fl *flow) {
	if fl.ended {
		return
	}
	fl.ended = true
	close(fl.stop)
	delete(f.all, fl.pair)
	if fl.conn != nil {
		fl.conn.Close()
	}
}

func (f *flows) remove(fl *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(fl)
}

func (f *flows) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	for _, fl := range f.all {
		f.end(fl)
	}
}

// push queues a datagram, or loses it.
func (f *flows) push(fl *flow, datagram []byte) {
	if f.queued.Add(int64(len(datagram))) > queueBudget {
		f.queued.Add(-int64(len(datagram)))
		return
	}
	select {
	case fl.queue <- datagram:
	default:
		f.queued.Add(-int64(len(datagram)))
	}
}

// drain gives back what a flow that has ended left in its queue.
func (f *flows) drain(fl *flow) {
	for {
		select {
		case datagram := <-fl.queue:
			f.queued.Add(-int64(len(datagram)))
		default:
			return
		}
	}
}

// forwardUDP handles a datagram of the sandbox.
func (s *Stack) forwardUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	p := pair{addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort)}
	udp := header.UDP(pkt.TransportHeader().Slice())
	size := int(udp.Length()) - header.UDPMinimumSize
	if size < 0 || size > pkt.Data().Size() || p.dst.Port() == 0 {
		return true
	}
	if s.isGateway(p.dst.Addr()) {
		s.refuseUDP(p)
		return true
	}
	fl, isNew := s.flows.find(p)
	if fl == nil {
		return true
	}
	fl.used.Store(time.Now().UnixNano())
	if fl.refused.Load() {
		s.refuseUDP(p)
		return true
	}
	s.flows.push(fl, pkt.Data().AsRange().ToSlice()[:size])
	if isNew {
		if !s.enter() {
			s.flows.remove(fl)
			return true
		}
		go s.serveFlow(fl)
	}
	return true
}

// refuseUDP answers that nobody listens, which programs report as a refusal.
func (s *Stack) refuseUDP(p pair) {
	s.unreachable(p, noPort)
}

func (s *Stack) unreachable(p pair, why unreachable) {
	s.link.writeRaw(controlMessage(quote(protoUDP, p.client, p.dst, 0), why))
}

// serveFlow opens the flow and carries what the client sends, until it ends.
func (s *Stack) serveFlow(fl *flow) {
	defer s.work.Done()
	defer s.flows.drain(fl)
	defer s.flows.remove(fl)
	conn, refused := s.gate.OpenUDP(s.ctx, fl.client, fl.dst)
	if refused != nil {
		s.holdRefusal(fl, refused.Err())
		return
	}
	defer conn.Close()
	if !s.flows.opened(fl, conn) {
		return
	}
	s.work.Add(1)
	go s.answer(fl, conn)
	for {
		select {
		case datagram := <-fl.queue:
			s.flows.queued.Add(-int64(len(datagram)))
			if _, err := conn.Write(datagram); errors.Is(err, syscall.ECONNREFUSED) {
				s.refuseUDP(fl.pair)
			}
		case <-fl.stop:
			return
		}
	}
}

// holdRefusal refuses the datagrams of a flow for a while.
func (s *Stack) holdRefusal(fl *flow, err error) {
	fl.refused.Store(true)
	switch {
	case errors.Is(err, syscall.ENETUNREACH):
		s.unreachable(fl.pair, noNet)
	case errors.Is(err, syscall.EHOSTUNREACH):
		s.unreachable(fl.pair, noHost)
	default:
		s.refuseUDP(fl.pair)
	}
	timer := time.NewTimer(refusedFor)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-fl.stop:
	}
}

// answer carries the host's answers, and ends the flow when it was silent long enough.
func (s *Stack) answer(fl *flow, conn net.Conn) {
	defer s.work.Done()
	defer s.flows.remove(fl)
	b := make([]byte, maxPacket)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(fl.idle()))
		n, err := conn.Read(b)
		switch {
		case err == nil:
			fl.answered.Store(true)
			s.sendDatagram(fl, b[:n])
		case errors.Is(err, syscall.ECONNREFUSED):
			s.refuseUDP(fl.pair)
		case isTimeout(err) && time.Since(time.Unix(0, fl.used.Load())) < fl.idle():
		default:
			return
		}
	}
}

func (fl *flow) idle() time.Duration {
	if fl.answered.Load() {
		return idleAnswered
	}
	return idleUnanswered
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// sendDatagram sends a datagram to the client, in fragments if necessary.
func (s *Stack) sendDatagram(fl *flow, b []byte) {
	if len(b) > maxPacket-header.UDPMinimumSize-header.IPv4MinimumSize {
		return
	}
	s.send(fl.dst.Addr(), fl.client.Addr(), header.UDPProtocolNumber, b, func(pkt *stack.PacketBuffer, r *stack.Route) {
		udp := header.UDP(pkt.TransportHeader().Push(header.UDPMinimumSize))
		size := uint16(header.UDPMinimumSize + len(b))
		udp.Encode(&header.UDPFields{SrcPort: fl.dst.Port(), DstPort: fl.client.Port(), Length: size})
		sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, r.LocalAddress(), r.RemoteAddress(), size)
		sum = udp.CalculateChecksum(checksum.Checksum(b, sum))
		// A sum of zero would mean that there is none.
		if sum != 0xffff {
			sum = ^sum
		}
		udp.SetChecksum(sum)
	})
}

// newPayload copies b into a buffer of the stack.
func newPayload(b []byte) buffer.Buffer { return buffer.MakeWithView(buffer.NewViewWithData(b)) }
