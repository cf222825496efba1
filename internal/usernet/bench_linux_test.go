package usernet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
)

// source sends as many bytes as it is asked for, sink takes them; both begin
// with the number.
func source(c net.Conn) {
	b := make([]byte, 128<<10)
	var n [8]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return
	}
	for left := int64(binary.BigEndian.Uint64(n[:])); left > 0; {
		w, err := c.Write(b[:min(int64(len(b)), left)])
		if err != nil {
			return
		}
		left -= int64(w)
	}
}

func sink(c net.Conn) {
	b := make([]byte, 128<<10)
	for {
		if _, err := c.Read(b); err != nil {
			_, _ = c.Write([]byte{1})
			return
		}
	}
}

const benchSize = 8 << 20

func BenchmarkThroughput(b *testing.B) {
	for _, kind := range []string{"tun", "veth"} {
		for _, way := range []string{"in", "out"} {
			b.Run(kind+"/"+way, func(b *testing.B) {
				s := newSandbox(b, kind, &testGate{})
				serve := source
				if way == "out" {
					serve = sink
				}
				c := s.dial(b, netip.AddrPortFrom(far4, listen(b, false, serve)))
				b.SetBytes(benchSize)
				b.ResetTimer()
				transfer(b, c, way, int64(b.N)*benchSize)
			})
		}
	}
}

func transfer(b *testing.B, c *net.TCPConn, way string, total int64) {
	if way == "in" {
		_, _ = c.Write(binary.BigEndian.AppendUint64(nil, uint64(total)))
		buf := make([]byte, 128<<10)
		for total > 0 {
			n, err := c.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			total -= int64(n)
		}
		return
	}
	buf := make([]byte, 128<<10)
	for total > 0 {
		n, err := c.Write(buf[:min(int64(len(buf)), total)])
		if err != nil {
			b.Fatal(err)
		}
		total -= int64(n)
	}
	_ = c.CloseWrite()
	if _, err := c.Read(buf); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkConnect(b *testing.B) {
	for _, kind := range []string{"tun", "veth"} {
		b.Run(kind, func(b *testing.B) {
			port := listen(b, false, func(c net.Conn) { _, _ = c.Write([]byte{1}) })
			s := newSandbox(b, kind, &testGate{})
			for b.Loop() {
				c, err := s.tryDial(netip.AddrPortFrom(far4, port))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		inside, file := linkPair(b)
		s := startOn(b, newTestEndpoint(file), &testGate{})
		s.Close()
		inside.Close()
	}
}
