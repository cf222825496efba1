package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The rows of the network's tables that are not cloche's.
const (
	noSandboxName = "no sandbox"
	pastaName     = "pasta"
	slirpName     = "slirp4netns"
	socatName     = "socat bridge"
)

// networkCases ask what the user-mode network costs, against others of its
// kind: to make it, to connect, and to carry data.
func networkCases(_ context.Context, l *lab) ([]benchCase, error) {
	dir, err := l.folder("network")
	if err != nil {
		return nil, err
	}
	ways, err := l.networkWays()
	if err != nil {
		return nil, err
	}
	return ways.cases(job{Workspace: dir}, l.quick), nil
}

// networkWays are the contenders of the network's cases, by what they can do.
type networkWays struct {
	// setUp makes a network. The others work in one that is made:
	// carry for programs that know nothing of it, proxies for those that do.
	setUp          []contender
	carry, proxies func(errand netErrand) []contender
}

func (w networkWays) cases(j job, quick bool) []benchCase {
	size, conns := int64(256<<20), 200
	if quick {
		size, conns = 32<<20, 20
	}
	seconds := benchCase{job: j, wants: everybody, sampler: ownSampler, unit: report.Seconds, budget: 6 * time.Second}
	speed := seconds
	speed.unit, speed.higher = report.BytesPerSecond, true
	with := func(c benchCase, title string, who []contender, baselines ...string) benchCase {
		c.title, c.contenders, c.baselines = title, who, baselines
		return c
	}
	connect, in, out := netErrand{Op: opConnect, N: int64(conns)}, netErrand{Op: opReceive, N: size}, netErrand{Op: opSend, N: size}
	return []benchCase{
		with(seconds, "The network of a sandbox, until it can be used", w.setUp, pastaName),
		with(seconds, "One connection: connect, a byte each way, close", w.carry(connect), slirpName, pastaName),
		with(speed, "Throughput into the sandbox, one connection", w.carry(in), slirpName, pastaName),
		with(speed, "Throughput out of the sandbox, one connection", w.carry(out), slirpName, pastaName),
		with(seconds, "One connection through the proxy inside", w.proxies(connect), socatName),
		with(speed, "Throughput of the proxy inside, into the sandbox", w.proxies(in), socatName),
		with(speed, "Throughput of the proxy inside, out of the sandbox", w.proxies(out), socatName),
	}
}

// ownSampler measures as the contender itself does, once for warming up.
func ownSampler(ctx context.Context, _ *lab, r *runner) (sampler, error) {
	_, err := r.sample(ctx)
	return r.sample, err
}

// What a client does.
const (
	opConnect = 'c' // N connections, a byte each way
	opReceive = 'r' // N bytes
	opSend    = 's' // N bytes
)

// A netErrand is the input of the client.
type netErrand struct {
	Op     byte
	N      int64
	Server netip.AddrPort
	// Proxy is where to ask for the server by CONNECT, if it is valid.
	Proxy netip.AddrPort
}

// netClientWord makes this program a client that does an errand, and prints
// how many seconds each connection took, or how many bytes a second it carried.
const netClientWord = "net-client"

// args are the arguments of the client.
func (e netErrand) args() []string {
	args := []string{netClientWord, string(rune(e.Op)), fmt.Sprint(e.N), e.Server.String()}
	if e.Proxy.IsValid() {
		args = append(args, e.Proxy.String())
	}
	return args
}

func netClientMain(args []string) int {
	value, err := netClient(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: client: %v\n", err)
		return 1
	}
	fmt.Println(value)
	return 0
}

func netClient(args []string) (float64, error) {
	if len(args) < 3 || len(args[0]) != 1 {
		return 0, fmt.Errorf("arguments %q", args)
	}
	n, err1 := strconv.ParseInt(args[1], 10, 64)
	server, err2 := netip.ParseAddrPort(args[2])
	e := netErrand{Op: args[0][0], N: n, Server: server}
	var err3 error
	if len(args) > 3 {
		e.Proxy, err3 = netip.ParseAddrPort(args[3])
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	return e.do()
}

func (e netErrand) do() (float64, error) {
	if e.Op == opConnect {
		start := time.Now()
		for range e.N {
			if err := e.once(); err != nil {
				return 0, err
			}
		}
		return time.Since(start).Seconds() / float64(e.N), nil
	}
	c, err := e.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	if err := e.carry(c); err != nil {
		return 0, err
	}
	return float64(e.N) / time.Since(start).Seconds(), nil
}

// dial connects to the server, by way of the proxy if there is one.
func (e netErrand) dial() (net.Conn, error) {
	to := e.Server
	if e.Proxy.IsValid() {
		to = e.Proxy
	}
	c, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
	if err != nil || !e.Proxy.IsValid() {
		return c, err
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", e.Server); err != nil {
		return c, err
	}
	return c, skipHead(c)
}

// skipHead reads the head of an HTTP answer, and no more.
func skipHead(c net.Conn) error {
	var head []byte
	for b := make([]byte, 1); len(head) < 4 || string(head[len(head)-4:]) != "\r\n\r\n"; head = append(head, b[0]) {
		if _, err := c.Read(b); err != nil || len(head) > 4096 {
			return fmt.Errorf("the proxy said %q: %w", head, err)
		}
	}
	if len(head) < 12 || string(head[9:12]) != "200" {
		return fmt.Errorf("the proxy said %q", head)
	}
	return nil
}

// once makes a connection, and ends it.
func (e netErrand) once() error {
	c, err := e.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return e.carry(c)
}

// carry tells the server what to do, and does the other half.
func (e netErrand) carry(c net.Conn) error {
	// Not a letter: what could be HTTP is looked at for longer.
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{e.Op | 0x80}, uint64(e.N))); err != nil {
		return err
	}
	switch e.Op {
	case opReceive:
		return discard(c, e.N)
	case opSend:
		if err := fill(c, e.N); err != nil {
			return err
		}
	}
	return discard(c, 1)
}

// serveNet is the server of the errands.
func serveNet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			n := int64(binary.BigEndian.Uint64(head[1:]))
			switch head[0] &^ 0x80 {
			case opReceive:
				_ = fill(c, n)
				return
			case opSend:
				if discard(c, n) != nil {
					return
				}
			}
			_, _ = c.Write([]byte{1})
		}()
	}
}

const pieceSize = 128 << 10

func fill(w io.Writer, n int64) error {
	b := make([]byte, pieceSize)
	for n > 0 {
		wrote, err := w.Write(b[:min(n, pieceSize)])
		if err != nil {
			return err
		}
		n -= int64(wrote)
	}
	return nil
}

func discard(r io.Reader, n int64) error {
	b := make([]byte, pieceSize)
	for n > 0 {
		read, err := r.Read(b)
		if err != nil {
			return err
		}
		n -= int64(read)
	}
	return nil
}
