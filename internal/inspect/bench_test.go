package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A splice carries bytes between two connections, as the gate does with hosts that are not
// inspected.
func (w *world) serveSplice(t testing.TB) {
	t.Helper()
	w.gate.Close()
	l := listen(t)
	w.gate = l
	w.clientTLS = &tls.Config{RootCAs: w.roots, ServerName: w.host}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.serving.Go(func() {
				defer c.Close()
				up, err := net.Dial("tcp", w.address)
				if err != nil {
					return
				}
				defer up.Close()
				go func() {
					io.Copy(up, c)
					up.(*net.TCPConn).CloseWrite()
				}()
				io.Copy(c, up)
			})
		}
	}()
}

// gates are the ways to the server that benchmarks compare.
func gates(b *testing.B, handler http.HandlerFunc, run func(b *testing.B, w *world, authorization string)) {
	for _, g := range []struct {
		name    string
		options []option
		field   string
	}{
		{"splice", nil, "Bearer other"},
		{"judged", []option{withJudge(func(Request) error { return nil })}, "Bearer other"},
		{"secret", []option{withSecret()}, "Bearer " + placeholder},
	} {
		b.Run(g.name, func(b *testing.B) {
			w := newWorld(b, handler, g.options...)
			if g.name == "splice" {
				w.serveSplice(b)
			}
			run(b, w, g.field)
		})
	}
}

func get(b *testing.B, c *http.Client, authorization string) {
	b.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+apiHost+"/path/to/thing?a=1", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	r.Header.Set("Accept-Encoding", "gzip")
	res, err := c.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.Status, err)
	}
}

func BenchmarkNewConnection(b *testing.B) {
	gates(b, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }, func(b *testing.B, w *world, authorization string) {
		client := w.client(true)
		for b.Loop() {
			get(b, client, authorization)
			client.CloseIdleConnections()
		}
	})
}

func BenchmarkKeptRequest(b *testing.B) {
	for _, h2 := range []bool{false, true} {
		b.Run(map[bool]string{false: "http1", true: "http2"}[h2], func(b *testing.B) {
			gates(b, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }, func(b *testing.B, w *world, authorization string) {
				client := w.client(h2)
				get(b, client, authorization)
				for b.Loop() {
					get(b, client, authorization)
				}
			})
		})
	}
}

func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	for _, h2 := range []bool{false, true} {
		b.Run(map[bool]string{false: "http1", true: "http2"}[h2], func(b *testing.B) {
			gates(b, func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, io.LimitReader(zeros{}, size)) }, func(b *testing.B, w *world, authorization string) {
				client := w.client(h2)
				b.SetBytes(size)
				for b.Loop() {
					get(b, client, authorization)
				}
			})
		})
	}
}

// What searching an answer costs that comes compressed, and one that comes without coding.
func BenchmarkAnswerCoding(b *testing.B) {
	var text []byte // as npm's metadata: mostly alike, with a hash in each entry
	for n := range 20000 {
		sum := sha256.Sum256(fmt.Append(nil, n))
		text = fmt.Appendf(text, `{"name":"package","version":"1.%d.3","dependencies":{"left-pad":"^1.3.0","right-pad":"~2.%d.0"},"scripts":{"test":"node test.js","build":"tsc -p ."},`+
			`"dist":{"shasum":"%x","tarball":"https://registry.example.com/package/-/package-1.%d.3.tgz"},"maintainers":[{"name":"ana","email":"ana@example.com"}]}`+"\n", n, n%7, sum[:20], n)
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	g.Write(text)
	g.Close()
	for _, code := range []string{"identity", "gzip"} {
		b.Run(code, func(b *testing.B) {
			w := newWorld(b, func(w http.ResponseWriter, _ *http.Request) {
				if code == "gzip" {
					w.Header().Set("Content-Encoding", "gzip")
					w.Write(z.Bytes())
					return
				}
				w.Write(text)
			}, withSecret())
			client := w.client(true)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				get(b, client, "Bearer "+placeholder)
			}
			if code == "gzip" {
				b.ReportMetric(float64(len(text))/float64(z.Len()), "ratio")
			}
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and {\"json\": [1, 2, 3]}.\n", 20000))
	for _, secrets := range []int{1, 10} {
		b.Run(fmt.Sprintf("%d secrets", secrets), func(b *testing.B) {
			v := newVault()
			for n := range secrets {
				v.learn(n, fmt.Appendf(nil, "%s%02d", secretValue, n), placeholder)
			}
			b.SetBytes(int64(len(text)))
			buffer := make([]byte, 32<<10)
			for b.Loop() {
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, &filter{src: bytes.NewReader(text), matcher: v.search()}, buffer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLeaf(b *testing.B) {
	a, err := newAuthority()
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if _, err := a.leaf(fmt.Sprintf("h%d.example.com", n)); err != nil {
			b.Fatal(err)
		}
	}
}

// A thousand connections that carry an answer at the same time stay within 200 MiB. The
// test makes a quarter of them, for a quarter of the memory. Client
// and server are in this process, too: what they use is measured without the inspector.
func TestMemoryOfManyConnections(t *testing.T) {
	const connections, limit = 250, 50 << 20
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, holdAnswers, withSecret())
		inspected := w.useOf(t, connections, h2)
		direct := newWorld(t, holdAnswers, withSecret())
		direct.serveSplice(t)
		used := inspected - direct.useOf(t, connections, h2)
		t.Logf("%d connections: %d KiB each", connections, used>>10/connections)
		if used > limit && !raced {
			t.Errorf("%d connections use %d MiB", connections, used>>20)
		}
	})
}

// holdAnswers is a server that ends no answer by itself.
func holdAnswers(w http.ResponseWriter, r *http.Request) {
	w.Write(make([]byte, 16<<10))
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// useOf returns the memory that is in use while connections carry an answer each.
func (w *world) useOf(t *testing.T, connections int, h2 bool) int64 {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := inUse(t)
	var got, ended sync.WaitGroup
	places := make(chan struct{}, 32) // handshakes at the same time
	for range connections {
		client := w.client(h2)
		got.Add(1)
		ended.Go(func() {
			defer client.CloseIdleConnections()
			places <- struct{}{}
			res, err := client.Do(request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder).WithContext(ctx))
			if err == nil {
				defer res.Body.Close()
				_, err = io.ReadFull(res.Body, make([]byte, 16<<10))
			}
			<-places
			if err != nil {
				t.Error(err)
			}
			got.Done()
			<-ctx.Done()
		})
	}
	got.Wait()
	used := inUse(t) - before
	cancel()
	ended.Wait()
	return used
}

// inUse returns the memory in use, once it does not change any more.
func inUse(t *testing.T) int64 {
	t.Helper()
	last := int64(-1)
	testenv.Eventually(t, "that the memory in use stands", func() bool {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before := last
		last = int64(m.HeapInuse + m.StackInuse)
		return before >= 0 && last-before < 1<<19 && before-last < 1<<19
	})
	return last
}

// A client that does not read holds no more of an answer in memory than the windows.
func TestSlowReaderIsBounded(t *testing.T) {
	const connections, limit = 30, 100 << 20
	both(t, func(t *testing.T, h2 bool) {
		w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, zeros{}) }, withSecret())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := inUse(t)
		var bodies []io.Closer
		for range connections {
			res, err := w.client(h2).Do(request(t, "GET", "/", nil, "Authorization: Bearer "+placeholder).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, res.Body)
		}
		// Go's client buffers 4 MiB of a stream by itself.
		if used := inUse(t) - before; used > limit+connections*(4<<20) {
			t.Errorf("%d stalled answers use %d MiB", connections, used>>20)
		}
		for _, b := range bodies {
			b.Close()
		}
	})
}
