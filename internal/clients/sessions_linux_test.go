package clients

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// An auditLog keeps what was recorded.
type auditLog struct {
	mu     sync.Mutex
	events []audit.Event
}

func (l *auditLog) Record(e audit.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	return nil
}

// connections waits for the records of connections to a host, by their verdicts.
func (l *auditLog) connections(host string, verdict string) int {
	count := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range l.events {
			if e.Kind == audit.Connected && e.Connection.Name == host && e.Verdict == verdict {
				n++
			}
		}
		return n
	}
	testenv.Becomes(func() bool { return count() > 0 })
	return count()
}

// openSession opens a session in a fresh workspace whose commands reach
// good.example.
func openSession(t *testing.T, backend string, opts ...cloche.Option) (*cloche.Session, *auditLog) {
	t.Helper()
	testnet.Need(t)
	testenv.Need(t, "curl")
	if backend == "bwrap" {
		testenv.Need(t, "bwrap")
	}
	dir, log := t.TempDir(), &auditLog{}
	// Not strict: as root, bwrap has a gap with wrapped commands.
	p := policy.Workspace(dir).With(policy.WithBackend(backend), policy.WithRequire(policy.BestEffort), policy.AllowHosts("good.example"), policy.AllowRead(testnet.Dir()))
	s, err := cloche.Open(t.Context(), p, append(opts, cloche.WithWorkspace(dir), cloche.WithAudit(log))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, log
}

// fetch asks one address alone: curl tries another one beside it when the first has
// not answered in a fifth of a second.
func fetch(host string) string { return "curl -4 -sS --max-time 120 --fail http://" + host + "/x" }

func capture(t *testing.T, s *cloche.Session, script string) *cloche.Result {
	t.Helper()
	r, err := s.Command(t.Context(), "sh", "-c", script).Capture()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// N3, N10: the commands of a session share a network that is made once, and each
// has its own connections and refusals on record.
func TestSessions(t *testing.T) {
	for name, mode := range map[string]cloche.Option{"warm": cloche.WithWarm(), "fast": cloche.WithWarmFast()} {
		t.Run(name, func(t *testing.T) {
			s, log := openSession(t, "native", mode)
			for range 3 {
				r := capture(t, s, fetch("good.example"))
				if !r.Success() || len(r.Connections) != 1 || r.Connections[0].Name != "good.example" || !strings.HasSuffix(r.Connections[0].Program, "curl") {
					t.Errorf("good.example: %d %s%s\n%+v", r.ExitCode, r.Stdout, r.Stderr, r.Connections)
				}
			}
			r := capture(t, s, fetch("other.example"))
			if r.Success() || !slices.ContainsFunc(r.Denied, func(d plan.Denial) bool { return d.Host == "other.example" }) {
				t.Errorf("other.example: %d %s%s\n%+v", r.ExitCode, r.Stdout, r.Stderr, r.Denied)
			}
			if n := log.connections("good.example", runlog.Allow); n != 3 {
				t.Errorf("%d connections are in the log, want 3", n)
			}
		})
	}
}

// N10: of two commands that run at the same time each has only its own
// connections.
func TestOwners(t *testing.T) {
	for name, mode := range map[string]cloche.Option{"warm": cloche.WithWarm(), "fast": cloche.WithWarmFast()} {
		t.Run(name, func(t *testing.T) {
			s, _ := openSession(t, "native", mode)
			quiet := s.Command(t.Context(), "sh", "-c", "read line")
			stdin, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			quiet.Stdin = stdin
			if err := quiet.Start(); err != nil {
				t.Fatal(err)
			}
			r := capture(t, s, fetch("good.example")+"; "+fetch("other.example"))
			fmt.Fprintln(w, "go on")
			w.Close()
			if err := quiet.Wait(); err != nil {
				t.Fatal(err)
			}
			if len(r.Connections) == 0 || len(r.Denied) == 0 {
				t.Errorf("the command has %+v, denied %+v", r.Connections, r.Denied)
			}
			if q := quiet.Result(); len(q.Connections) != 0 || len(q.Denied) != 0 {
				t.Errorf("the quiet one has %+v, denied %+v", q.Connections, q.Denied)
			}
		})
	}
}

// L5, C1: a wrapped command has the network, its connections are in the log, and
// the network goes with it.
func TestWrapped(t *testing.T) {
	for _, name := range []string{"native", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			s, log := openSession(t, name)
			c := exec.Command("/bin/sh", "-c", fetch("good.example")+" && ! "+fetch("other.example"))
			c.Dir = explained(s).Workspace
			if err := s.Wrap(c); err != nil {
				t.Fatal(err)
			}
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if log.connections("good.example", runlog.Allow) != 1 || log.connections("other.example", runlog.Deny) == 0 {
				t.Errorf("the log has %+v", log.events)
			}
			awaitNoLinks(t)
		})
	}
}

// awaitNoLinks waits until this process holds no end of a link.
func awaitNoLinks(t *testing.T) {
	t.Helper()
	var held []string
	if !testenv.Becomes(func() bool {
		held = nil
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			link, _ := os.Readlink("/proc/self/fd/" + e.Name())
			if link == "/dev/net/tun" || strings.HasPrefix(link, "net:[") {
				held = append(held, link)
			}
		}
		return len(held) == 0
	}) {
		t.Errorf("still held: %v", held)
	}
}

// L5: each link carries what the rules allow.
func TestLinks(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for _, link := range []string{"tun", "veth", "proxy"} {
			t.Run(link, func(t *testing.T) {
				testenv.Need(t, "curl")
				if link == "tun" {
					testenv.Need(t, "tun")
				}
				s := s.with("--net", "user:"+link, "--allow", "good.example")
				if o := s.run(t, "sh", "-c", fetch("good.example")); o.status != 0 || o.connected("good.example", 80) == nil {
					t.Errorf("good.example: status %d: %s%s\n%+v", o.status, o.stdout, o.stderr, o.report.Result.Connections)
				}
				if o := s.run(t, "sh", "-c", fetch("other.example")); o.status == 0 || !o.refused("other.example") {
					t.Errorf("other.example: status %d: %s%s", o.status, o.stdout, o.stderr)
				}
			})
		}
	})
}

// L5, W4: a command whose cloche is killed has no network any more, and does not
// run any more; the ports that it published are free.
func TestKilled(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		testenv.Need(t, "bash", "python3")
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, "run", "--backend", s.backend, "--net", "user", "--allow", "good.example", "--publish", "18080:8080", "--",
			"bash", "-c", "exec 3<>/dev/tcp/good.example/2525; head -n1 <&3; exec python3 -u -m http.server 8080")
		c.Dir = s.workspace
		c.Env = []string{roleVariable + "=" + roleCommand, "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"), "HOME=" + s.home, "LANG=C.UTF-8", "USER=ana"}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "220") {
			t.Fatalf("the server said %q: %v", line, err)
		}
		awaitPort(t, true)
		inside := processesIn(t, s.workspace)
		if len(inside) == 0 {
			t.Fatal("no process of the command was found")
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		awaitPort(t, false)
		if !testenv.Becomes(func() bool { return len(processesIn(t, s.workspace)) == 0 }) {
			t.Fatalf("the processes %v are left", processesIn(t, s.workspace))
		}
	})
}

// awaitPort waits until the published port answers, or does not.
func awaitPort(t *testing.T, up bool) {
	t.Helper()
	var err error
	if !testenv.Becomes(func() bool {
		var r *http.Response
		if r, err = http.Get("http://127.0.0.1:18080/"); err == nil {
			r.Body.Close()
		}
		return (err == nil) == up
	}) {
		t.Fatalf("the published port answers: %v, want %v: %v", err == nil, up, err)
	}
}

// processesIn are the processes that work in a folder, but cloche itself.
func processesIn(t *testing.T, dir string) (pids []string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, l := range links {
		cwd, _ := os.Readlink(l)
		net, _ := os.Readlink(filepath.Dir(l) + "/ns/net")
		if cwd == real && net != own {
			pids = append(pids, filepath.Base(filepath.Dir(l)))
		}
	}
	return pids
}

// L5: a run leaves neither descriptors nor goroutines in this process.
func TestNothingIsLeft(t *testing.T) {
	for _, name := range []string{"native", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			s, _ := openSession(t, name)
			capture(t, s, fetch("good.example")) // what is made once and kept
			files, routines := openFiles(), runtime.NumGoroutine()
			for range 10 {
				if r := capture(t, s, fetch("good.example")); !r.Success() {
					t.Fatalf("%s%s", r.Stdout, r.Stderr)
				}
			}
			if !testenv.Becomes(func() bool { return openFiles() <= files && runtime.NumGoroutine() <= routines }) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d descriptors became %d, %d goroutines %d\n%s", files, openFiles(), routines, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			}
		})
	}
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// explained is the plan of a session that has one.
func explained(s *cloche.Session) *plan.Plan {
	p, err := s.Explain()
	if err != nil {
		panic(err)
	}
	return p
}
