package usernet

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// random is a stream of bytes that can be made again.
func random(seed uint64, size int64) io.Reader {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	return io.LimitReader(rand.NewChaCha8(key), size)
}

func sumOf(t testing.TB, r io.Reader) [32]byte {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		t.Error(err)
	}
	return [32]byte(h.Sum(nil))
}

// L5: what is sent arrives, both ways at once, and half a connection can be closed.
func TestTransferBothWays(t *testing.T) {
	const size = 48<<20 + 12345
	onLinks(t, func(t *testing.T, kind string) {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
				got := make(chan [32]byte, 1)
				port := listen(t, v6, func(c net.Conn) {
					var both sync.WaitGroup
					both.Go(func() {
						_, err := io.Copy(c, random(2, size))
						if err := errors.Join(err, c.(*net.TCPConn).CloseWrite()); err != nil {
							t.Error(err)
						}
					})
					got <- sumOf(t, c)
					both.Wait()
				})
				s := newSandbox(t, kind, &testGate{})
				c := s.dial(t, netip.AddrPortFrom(far(v6), port))
				var both sync.WaitGroup
				both.Go(func() {
					if sumOf(t, c) != sumOf(t, random(2, size)) {
						t.Error("what came in differs from what was sent")
					}
				})
				_, err := io.Copy(c, random(1, size))
				if err := errors.Join(err, c.CloseWrite()); err != nil {
					t.Fatal(err)
				}
				both.Wait()
				if <-got != sumOf(t, random(1, size)) {
					t.Error("what went out differs from what was sent")
				}
			})
		}
	})
}

// L5: many connections at once, each with its own data.
func TestParallelConnections(t *testing.T) {
	const conns, size = 200, 300 << 10
	onLinks(t, func(t *testing.T, kind string) {
		port := listen(t, false, func(c net.Conn) { _, _ = io.Copy(c, c) })
		s := newSandbox(t, kind, &testGate{})
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() {
				c, err := s.tryDial(netip.AddrPortFrom(far4, port))
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				var sent sync.WaitGroup
				sent.Go(func() {
					_, err := io.Copy(c, random(uint64(i), size))
					if err := errors.Join(err, c.CloseWrite()); err != nil {
						t.Error(err)
					}
				})
				if sumOf(t, c) != sumOf(t, random(uint64(i), size)) {
					t.Errorf("connection %d got something else than it sent", i)
				}
				sent.Wait()
			})
		}
		all.Wait()
	})
}

// A server that answers only once its client has closed its half works.
func TestHalfClose(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		port := listen(t, false, func(c net.Conn) {
			b, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(b))
		})
		s := newSandbox(t, kind, &testGate{})
		c := s.dial(t, netip.AddrPortFrom(far4, port))
		_, _ = io.WriteString(c, "hello")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

// A reset is passed on, in both directions.
func TestReset(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		s := newSandbox(t, kind, &testGate{})
		t.Run("server", func(t *testing.T) {
			port := listen(t, false, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_ = c.(*net.TCPConn).SetLinger(0)
			})
			c := s.dial(t, netip.AddrPortFrom(far4, port))
			_, _ = c.Write([]byte{1})
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client saw %v", err)
			}
		})
		t.Run("client", func(t *testing.T) {
			seen := make(chan error, 1)
			port := listen(t, false, func(c net.Conn) {
				_, _ = c.Write([]byte{1})
				_, err := io.Copy(io.Discard, c)
				seen <- err
			})
			c := s.dial(t, netip.AddrPortFrom(far4, port))
			_, _ = c.Read(make([]byte, 1))
			_ = c.SetLinger(0)
			c.Close()
			if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the server saw %v", err)
			}
		})
	})
}

// L5: what fails outside fails inside with the same error, and soon.
func TestConnectErrors(t *testing.T) {
	refusals := map[uint16]struct {
		refusal *testRefusal
		want    error
	}{
		1: {&testRefusal{err: syscall.ECONNREFUSED}, syscall.ECONNREFUSED},
		2: {&testRefusal{err: syscall.EHOSTUNREACH}, syscall.EHOSTUNREACH},
		3: {&testRefusal{err: syscall.ENETUNREACH}, syscall.ENETUNREACH},
		4: {&testRefusal{err: syscall.ETIMEDOUT}, syscall.EHOSTUNREACH},
		5: {&testRefusal{}, syscall.ECONNREFUSED}, // by a rule
	}
	gate := &testGate{refuse: func(_ string, dst netip.AddrPort) *testRefusal { return refusals[dst.Port()].refusal }}
	onLinks(t, func(t *testing.T, kind string) {
		s := newSandbox(t, kind, gate)
		for _, v6 := range []bool{false, true} {
			for port, r := range refusals {
				start := time.Now()
				_, err := s.tryDial(netip.AddrPortFrom(far(v6), port))
				if !errors.Is(err, r.want) {
					t.Errorf("v6=%v: %+v gave %v", v6, r.refusal, err)
				}
				if took := time.Since(start); took > testenv.Patience/2 {
					t.Errorf("v6=%v: %+v took %v", v6, r.refusal, took)
				}
			}
		}
		// Nobody listens on this one.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		port := netip.MustParseAddrPort(l.Addr().String()).Port()
		if _, err := s.tryDial(netip.AddrPortFrom(far4, port)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a closed port gave %v", err)
		}
	})
}

// N3: a refusal can be explained to a client that is connected for it.
func TestExplainedRefusal(t *testing.T) {
	gate := &testGate{refuse: func(string, netip.AddrPort) *testRefusal { return &testRefusal{answer: "no, by rule 7\n"} }}
	onLinks(t, func(t *testing.T, kind string) {
		s := newSandbox(t, kind, gate)
		c := s.dial(t, netip.AddrPortFrom(far4, 80))
		if b, err := io.ReadAll(c); err != nil || string(b) != "no, by rule 7\n" {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

// The gateway accepts no connection, and the gate is not even asked.
func TestGatewayHasNoServices(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		gate := &testGate{}
		s := newSandbox(t, kind, gate)
		port := listen(t, false, func(net.Conn) {})
		for _, a := range []netip.Addr{gateway4, gateway6} {
			if _, err := s.tryDial(netip.AddrPortFrom(a, port)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%v: %v", a, err)
			}
		}
		if gate.opened.Load() != 0 || len(gate.asked()) != 0 {
			t.Error("the gate was asked")
		}
	})
}

// L5: a stack that is closed while connections are busy is gone with all that it had.
func TestCloseWhileBusy(t *testing.T) {
	onLinks(t, func(t *testing.T, kind string) {
		port := listen(t, false, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = io.Copy(c, random(1, 1<<40))
		})
		s := newSandbox(t, kind, &testGate{})
		var all sync.WaitGroup
		for range 20 {
			c := s.dial(t, netip.AddrPortFrom(far4, port))
			all.Go(func() { _, _ = io.Copy(c, random(2, 1<<40)) })
			all.Go(func() { _, _ = io.Copy(io.Discard, c) })
			t.Cleanup(func() { c.Close(); all.Wait() })
		}
		time.Sleep(50 * time.Millisecond) // data flows in both directions meanwhile
		s.Stack.Close()
		select {
		case <-s.done:
		default:
			t.Error("the stack is closed and not done")
		}
		s.Stack.Close()
	})
}

// What a program wrote before it ended still arrives when the stack is closed.
func TestCloseKeepsWhatWasSent(t *testing.T) {
	const size = 1 << 20
	onLinks(t, func(t *testing.T, kind string) {
		got := make(chan int64, 1)
		port := listen(t, false, func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			got <- n
		})
		s := newSandbox(t, kind, &testGate{})
		c := s.dial(t, netip.AddrPortFrom(far4, port))
		if _, err := io.Copy(c, random(1, size)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		s.Stack.grace = testenv.Patience // a busy machine may need more than a moment
		s.Stack.Close()
		if n := <-got; n != size {
			t.Errorf("%d of %d bytes arrived", n, size)
		}
	})
}
