package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxQuery bounds a query. It holds one name and a few options.
	maxQuery = 1232
	// plainUDP is what a client takes that does not say how much (RFC 1035).
	plainUDP = 512
	// mostUDP is how much is sent in one datagram at most: what fits into one
	// packet nearly everywhere.
	mostUDP = 1232
	// queriesPerConn is how many queries of one TCP connection are worked on
	// at once.
	queriesPerConn = 8
)

// ServeDNS answers queries until the gate is closed, or both listeners are. It
// closes them. Either may be nil.
func (g *Gate) ServeDNS(udp net.PacketConn, tcp net.Listener) {
	var both sync.WaitGroup
	if udp != nil {
		both.Go(func() { g.serveUDP(udp) })
	}
	if tcp != nil {
		both.Go(func() { g.accept(tcp, g.dnsConns, g.serveDNSConn) })
	}
	both.Wait()
}

// serveUDP reads queries. Of too many at once the last are dropped, as a network does;
// clients ask again.
func (g *Gate) serveUDP(conn net.PacketConn) {
	if !g.begin(conn) {
		return
	}
	defer g.end(conn)
	defer shut(conn)
	var work sync.WaitGroup
	defer work.Wait()
	buffer := make([]byte, maxQuery+1)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || g.ctx.Err() != nil {
				return
			}
			continue // an ICMP error of an earlier answer
		}
		if n > maxQuery || !take(g.queries) {
			continue
		}
		query := append([]byte(nil), buffer[:n]...)
		work.Go(func() {
			defer give(g.queries)
			client := dnsClient{from: addrPortOf(from), to: addrPortOf(conn.LocalAddr()), protocol: "udp"}
			if answer := g.answer(g.ctx, client, query); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		})
	}
}

// accept hands connections to serve, as many at once as there are places. It
// closes the listener.
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
			// Out of descriptors, or a connection that is gone already.
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

// serveDNSConn answers the queries of one TCP connection, in the order in which the
// answers are ready.
func (g *Gate) serveDNSConn(conn net.Conn) {
	client := dnsClient{from: addrPortOf(conn.RemoteAddr()), to: addrPortOf(conn.LocalAddr()), protocol: "tcp"}
	places := make(chan struct{}, queriesPerConn)
	var work sync.WaitGroup
	defer work.Wait()
	var writing sync.Mutex
	for {
		_ = conn.SetReadDeadline(time.Now().Add(g.limits.idle))
		query, err := readMessage(conn)
		if err != nil || len(query) > maxQuery {
			return
		}
		places <- struct{}{}
		work.Go(func() {
			defer give(places)
			answer := g.answerBounded(client, query)
			if answer == nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_ = conn.SetWriteDeadline(time.Now().Add(g.limits.first))
			framed := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
			_, _ = conn.Write(append(framed, answer...))
		})
	}
}

// answerBounded waits for its turn among all queries in flight.
func (g *Gate) answerBounded(client dnsClient, query []byte) []byte {
	select {
	case g.queries <- struct{}{}:
		defer give(g.queries)
		return g.answer(g.ctx, client, query)
	case <-g.ctx.Done():
		return nil
	}
}

// A dnsClient is who asks.
type dnsClient struct {
	from, to netip.AddrPort
	protocol string
}

func addrPortOf(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.UDPAddr:
		return unmapPort(a.AddrPort())
	case *net.TCPAddr:
		return unmapPort(a.AddrPort())
	}
	return netip.AddrPort{}
}

func unmapPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// answer answers one query; nil means none at all.
func (g *Gate) answer(ctx context.Context, client dnsClient, query []byte) []byte {
	q, ok := parseQuery(query)
	if !ok {
		return nil
	}
	if client.protocol == "tcp" {
		q.size = 65535
	}
	if q.refuse != 0 {
		return q.reply(q.refuse, nil)
	}
	return g.answerQuestion(ctx, client, q)
}
