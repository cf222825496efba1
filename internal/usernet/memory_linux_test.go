package usernet

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// heapOf is what is held after everything that is not has been let go.
func heapOf() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// L5: a connection on which nothing moves holds no buffer.
func TestStillConnections(t *testing.T) {
	const many, most = 100, 64 << 10
	s := newSandbox(t, "veth", &testGate{})
	to := netip.AddrPortFrom(far4, listen(t, false, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }))
	before := heapOf()
	for range many {
		_ = s.dial(t, to)
	}
	if held := (heapOf() - before) / many; held > most {
		t.Errorf("%d bytes for each connection, want at most %d", held, most)
	}
}

// L5: however many connections there are, their buffers have a bound, and the first
// have all that they can use.
func TestBuffersAreBounded(t *testing.T) {
	c := conns{pending: map[stack.TransportEndpointID]uint32{}}
	buffers, held := 0, 0
	for n := range 2048 {
		id := stack.TransportEndpointID{RemotePort: uint16(n)}
		size, _ := c.reserve(id, 0)
		c.decided(id)
		if n < 16 && (size != maxBuffer || piecesFor(size) != largePieces) || n > 100 && piecesFor(size) != smallPieces {
			t.Fatalf("connection %d has buffers of %d and pieces of %d", n, size, piecesFor(size).size)
		}
		buffers += size
		held += piecesFor(size).size
	}
	if buffers > 128<<20 || held > 48<<20 {
		t.Errorf("in either direction 2048 connections have buffers of %d MiB and pieces of %d MiB", buffers>>20, held>>20)
	}
}
