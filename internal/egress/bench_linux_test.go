package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// dial connects to a proxy.
func dial(b testing.TB, address string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// tunnel opens a tunnel to good.example:9 on a connection to the proxy.
func tunnel(b testing.TB, c net.Conn) net.Conn {
	b.Helper()
	io.WriteString(c, "CONNECT good.example:9 HTTP/1.1\r\nHost: good.example:9\r\n\r\n")
	in := bufio.NewReaderSize(c, 64)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp, err)
	}
	return c
}

// push sends b.N blocks and waits until the server has them all.
func push(b *testing.B, c net.Conn) {
	defer c.Close()
	block := make([]byte, 256<<10)
	block[0] = 1
	b.SetBytes(int64(len(block)))
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	closeWrite(c)
	if _, err := io.Copy(io.Discard, c); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
}

// cpuTime is what this process and its children that have ended have used.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// measured runs a benchmark and reports the processor time of all that took part, which a
// busy machine changes less than the time on the clock.
func measured(b *testing.B, name string, run func(b *testing.B)) {
	b.Run(name, func(b *testing.B) {
		before := cpuTime()
		b.Cleanup(func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") })
		run(b)
	})
}

func sinkWorld(b *testing.B) *world {
	w := newWorld(b, "good.example")
	w.serve(goodAddr+":9", func(c net.Conn) { discard(c) })
	return w
}

// discard reads like a server that does something with the data: into memory.
func discard(c net.Conn) {
	buffer := make([]byte, 256<<10)
	for {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}

// BenchmarkThroughput compares the proxy listener with no proxy at all, and with
// the way that sandboxes without a listener inside go: socat inside bridges to a
// unix socket on which the proxy listens outside.
func BenchmarkThroughput(b *testing.B) {
	measured(b, "direct", func(b *testing.B) {
		w := sinkWorld(b)
		push(b, dial(b, w.servers["tcp "+goodAddr+":9"]))
	})
	measured(b, "proxy", func(b *testing.B) {
		w := sinkWorld(b)
		push(b, tunnel(b, dial(b, w.proxy())))
	})
	measured(b, "socat bridge and proxy", func(b *testing.B) {
		w := sinkWorld(b)
		path := filepath.Join(b.TempDir(), "proxy")
		l, err := net.Listen("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		go w.gate.ServeProxy(l)
		push(b, tunnel(b, socat(b, "UNIX-CONNECT:"+path)))
	})
	measured(b, "socat bridge alone", func(b *testing.B) {
		w := sinkWorld(b)
		push(b, socat(b, "TCP:"+w.servers["tcp "+goodAddr+":9"]))
	})
}

// socat starts a bridge for one connection and returns that connection.
func socat(b *testing.B, target string) net.Conn {
	b.Helper()
	testenv.Need(b, "socat")
	free := listen(b)
	address := free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command("socat", "TCP-LISTEN:"+port+",bind=127.0.0.1,reuseaddr", target)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		// It ends with its connection.
		killer := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		defer killer.Stop()
		cmd.Wait()
	})
	var c net.Conn
	testenv.Eventually(b, "socat listens", func() bool {
		var err error
		c, err = net.Dial("tcp", address)
		return err == nil
	})
	return c
}

// BenchmarkConnect is what one short connection costs.
func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, "good.example")
	w.serve(goodAddr+":9", echo)
	direct := w.servers["tcp "+goodAddr+":9"]
	proxy := w.proxy()
	once := func(b *testing.B, c net.Conn) {
		c.Write([]byte{1})
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		reset(c)
	}
	b.Run("direct", func(b *testing.B) {
		for range b.N {
			once(b, dial(b, direct))
		}
	})
	b.Run("proxy", func(b *testing.B) {
		for range b.N {
			once(b, tunnel(b, dial(b, proxy)))
		}
	})
}

// BenchmarkRequest is what one request of plain HTTP costs on a connection that is kept.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b, "good.example")
	w.serveHTTP(goodAddr+":80", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "ok") })
	run := func(b *testing.B, c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for range b.N {
			io.WriteString(c, getGood)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
		}
	}
	measured(b, "direct", func(b *testing.B) { run(b, dial(b, w.servers["tcp "+goodAddr+":80"])) })
	measured(b, "judged", func(b *testing.B) {
		c, err := w.reach("good.example", "80")
		if err != nil {
			b.Fatal(err)
		}
		_ = c.SetDeadline(time.Time{})
		run(b, c)
	})
}

// BenchmarkJudging is what is done for each part of a connection before it moves on.
func BenchmarkJudging(b *testing.B) {
	w := newWorld(b, "good.example", "*.other.example:443")
	hello := clientHello(b, "good.example")
	query := makeQuery(b, "good.example", dnsmessage.TypeA)
	request := "GET /some/path HTTP/1.1\r\nHost: good.example\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n"
	b.Run("ClientHello", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := readHello(hello); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := readRequest(bufio.NewReader(strings.NewReader(request))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("DNS query", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			w.gate.answer(dnsClient{protocol: "udp"}, query)
		}
	})
}
