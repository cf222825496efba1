//go:build linux

package usernet

import (
	"context"
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

// Limits of datagrams for one sandbox.
const (
	// maxFlows bounds the flows that are open at a time. A new one replaces the one that
	// was silent longest.
	maxFlows = 1024
	// flowQueue bounds the datagrams of one flow that wait to be sent, and queueBudget the
	// bytes of all flows. Further datagrams are lost, as on any network.
	flowQueue   = 64
	queueBudget = 8 << 20
	// A flow ends after this time of silence: the first value applies until the first
	// answer, the second after it.
	idleUnanswered = 30 * time.Second
	idleAnswered   = 3 * time.Minute
	// refusedFor is how long a refusal applies to the datagrams of a flow, so that a
	// program that keeps trying does not fill the record.
	refusedFor = time.Second
)

// A pair is the addresses of a flow.
type pair struct{ client, dst netip.AddrPort }

func pairOf(id stack.TransportEndpointID) pair {
	return pair{addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort)}
}

// A flow is the datagrams between a pair of addresses.
type flow struct {
	pair
	queue    chan []byte // to the host
	ctx      context.Context
	end      context.CancelFunc
	refused  atomic.Bool
	answered atomic.Bool
	used     atomic.Int64 // time of the last datagram of the client
}

// flows are the open flows.
type flows struct {
	mu     sync.Mutex
	all    map[pair]*flow
	queued atomic.Int64 // bytes
}

// push queues a datagram for its flow, or drops it if the queue is full. It reports
// whether the flow is new.
func (f *flows) push(ctx context.Context, p pair, datagram []byte) (fl *flow, isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl = f.all[p]
	if isNew = fl == nil; isNew {
		if len(f.all) >= maxFlows {
			f.endOldest()
		}
		fl = &flow{pair: p, queue: make(chan []byte, flowQueue)}
		fl.ctx, fl.end = context.WithCancel(ctx)
		f.all[p] = fl
	}
	fl.used.Store(time.Now().UnixNano())
	size := int64(len(datagram))
	if fl.refused.Load() || len(fl.queue) == cap(fl.queue) || f.queued.Load()+size > queueBudget {
		return fl, isNew
	}
	f.queued.Add(size)
	fl.queue <- datagram // there is still room: only push sends, and it holds the lock
	return fl, isNew
}

// endOldest ends the flow that was silent longest.
func (f *flows) endOldest() {
	var oldest *flow
	for _, fl := range f.all {
		if oldest == nil || fl.used.Load() < oldest.used.Load() {
			oldest = fl
		}
	}
	delete(f.all, oldest.pair)
	oldest.end()
}

// remove forgets a flow that has ended, and its queue.
func (f *flows) remove(fl *flow) {
	fl.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[fl.pair] == fl {
		delete(f.all, fl.pair)
	}
	for len(fl.queue) > 0 {
		f.queued.Add(-int64(len(<-fl.queue)))
	}
}

// forwardUDP handles a datagram from the sandbox.
func (s *Stack) forwardUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	p := pairOf(id)
	udp := header.UDP(pkt.TransportHeader().Slice())
	size := int(udp.Length()) - header.UDPMinimumSize
	if size < 0 || size > pkt.Data().Size() || p.dst.Port() == 0 {
		return true
	}
	if s.isGateway(p.dst.Addr()) {
		s.unreachable(protoUDP, p, 0, noPort)
		return true
	}
	fl, isNew := s.flows.push(s.ctx, p, pkt.Data().AsRange().ToSlice()[:size])
	switch {
	case fl.refused.Load():
		s.unreachable(protoUDP, p, 0, noPort)
	case isNew && s.enter():
		go s.serveFlow(fl)
	case isNew:
		s.flows.remove(fl)
	}
	return true
}

// serveFlow opens the flow and sends the client's datagrams until the flow ends.
func (s *Stack) serveFlow(fl *flow) {
	defer s.work.Done()
	defer s.flows.remove(fl)
	conn, refused := s.gate.OpenUDP(s.ctx, fl.client, fl.dst)
	if refused != nil {
		s.holdRefusal(fl, refused.Err())
		return
	}
	defer conn.Close()
	s.work.Go(func() { s.answer(fl, conn) })
	for {
		select {
		case datagram := <-fl.queue:
			s.flows.queued.Add(-int64(len(datagram)))
			if _, err := conn.Write(datagram); errors.Is(err, syscall.ECONNREFUSED) {
				s.unreachable(protoUDP, fl.pair, 0, noPort)
			}
		case <-fl.ctx.Done():
			return
		}
	}
}

// holdRefusal refuses the datagrams of a flow for a time.
func (s *Stack) holdRefusal(fl *flow, err error) {
	fl.refused.Store(true)
	why := noPort // programs report this as a refusal
	switch {
	case errors.Is(err, syscall.ENETUNREACH):
		why = noNet
	case errors.Is(err, syscall.EHOSTUNREACH):
		why = noHost
	}
	s.unreachable(protoUDP, fl.pair, 0, why)
	select {
	case <-time.After(refusedFor):
	case <-fl.ctx.Done():
	}
}

// answer carries the host's answers, and ends the flow when it has been silent long
// enough.
func (s *Stack) answer(fl *flow, conn net.Conn) {
	defer fl.end()
	b := make([]byte, maxPacket)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(fl.idle()))
		n, err := conn.Read(b)
		switch {
		case err == nil:
			fl.answered.Store(true)
			s.sendDatagram(fl, b[:n])
		case errors.Is(err, syscall.ECONNREFUSED):
			s.unreachable(protoUDP, fl.pair, 0, noPort)
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
		// Zero would mean that there is no checksum.
		if sum != 0xffff {
			sum = ^sum
		}
		udp.SetChecksum(sum)
	})
}

// newPayload copies b into a buffer of the stack.
func newPayload(b []byte) buffer.Buffer { return buffer.MakeWithView(buffer.NewViewWithData(b)) }
