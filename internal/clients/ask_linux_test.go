package clients

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/desksocket"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A clerk decides about each request a moment after it was asked, by scope: empty
// refuses, "later" leaves it.
type clerk struct {
	scope grant.Scope
	host  string // what to give instead
	work  sync.WaitGroup

	mu        sync.Mutex
	asked     []grant.Request
	withdrawn int
}

const later grant.Scope = "later"

// think is long enough for what goes on at the same time to come and wait, too.
const think = 300 * time.Millisecond

func (c *clerk) Asked(d *grant.Desk, r grant.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r)
	c.mu.Unlock()
	if c.scope == later {
		return
	}
	c.work.Go(func() {
		time.Sleep(think) // as a person does
		_, _ = d.Decide(r.ID, grant.Decision{Allow: c.scope != "", Scope: c.scope, Host: c.host, By: "clerk"})
	})
}

func (c *clerk) Withdrawn(grant.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawn++
}

// requests are what was asked since the last time.
func (c *clerk) requests() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.asked {
		list = append(list, r.Host)
	}
	c.asked = nil
	return list
}

func (c *clerk) option() cloche.Option {
	return cloche.WithAsk(grant.Options{Approvers: []grant.Approver{c}, Timeout: testenv.Patience})
}

// eachAsking runs a test on both backends, in a session that asks the clerk.
func eachAsking(t *testing.T, c *clerk, test func(t *testing.T, s *cloche.Session)) {
	t.Helper()
	for _, name := range []string{"native", "bwrap"} {
		t.Run(name, func(t *testing.T) {
			s, _ := openSession(t, name, c.option())
			test(t, s)
			c.work.Wait()
			c.requests()
		})
	}
}

func hasConnect(denied []plan.Denial, host string) bool {
	return slices.ContainsFunc(denied, func(d plan.Denial) bool { return d.Op == plan.OpConnect && d.Host == host })
}

// N2: a connection to a host that no rule allows waits and then succeeds; those to
// the same port of the same host share the question, another port is another one.
// What is given for the session is in the plan of the next command.
func TestAskConnects(t *testing.T) {
	c := &clerk{scope: grant.Session}
	eachAsking(t, c, func(t *testing.T, s *cloche.Session) {
		before := len(seen(t).Questions)
		r := capture(t, s, fetch("other.example")+" & "+fetch("other.example")+"; wait $! && "+fetch("other.example"))
		if got := c.requests(); !r.Success() || !slices.Equal(got, []string{"tcp://other.example:80"}) {
			t.Fatalf("got %d %s%s, asked %q, denied %v", r.ExitCode, r.Stdout, r.Stderr, got, r.Denied)
		}
		if n := strings.Count(string(r.Stdout), "other.example"); n != 3 {
			t.Errorf("%d of 3 were served: %s", n, r.Stdout)
		}
		if len(r.Denied) > 0 || !slices.ContainsFunc(r.Notices, func(n plan.Notice) bool { return n.Kind == plan.NoticeGranted }) {
			t.Errorf("denied %v, notices %v", r.Denied, r.Notices)
		}
		if q := seen(t).Questions[before:]; !slices.Contains(q, "other.example") {
			t.Errorf("the name server was asked for %q", q)
		}
		r = capture(t, s, fetch("other.example")+"; "+fetchTLS("other.example", ""))
		if got := c.requests(); !r.Success() || !slices.Equal(got, []string{"tcp://other.example:443"}) {
			t.Errorf("the next command: %d %s%s, asked %q", r.ExitCode, r.Stdout, r.Stderr, got)
		}
		if v, err := s.Check("connect", "other.example:80"); err != nil || !v.Allowed {
			t.Errorf("check says %+v, %v", v, err)
		}
	})
}

func fetchTLS(host, by string) string {
	text := "curl -sS --max-time 120 --fail --cacert " + testnet.AuthorityFile() + " https://" + host + "/x"
	if by != "" {
		text += " --connect-to " + host + ":443:" + by + ":443"
	}
	return text
}

// N2: a host that was given is judged as any other: the name in a greeting and in
// a request is compared, and a name that leads to what is not public leads nowhere.
// An address is asked about by itself, with a warning.
func TestAskGivesNoMore(t *testing.T) {
	c := &clerk{scope: grant.Once}
	eachAsking(t, c, func(t *testing.T, s *cloche.Session) {
		r := capture(t, s, fetchTLS("shared.example", "other.example")+"; curl -sS --max-time 120 --fail -H 'Host: shared.example' http://other.example/; true")
		if got := c.requests(); len(r.Stdout) > 0 || !strings.Contains(string(r.Stderr), "alert access denied") || !slices.Equal(got, []string{"tcp://other.example:443", "tcp://other.example:80"}) {
			t.Errorf("by other.example: %s%s, asked %q", r.Stdout, r.Stderr, got)
		}
		for _, name := range []string{"private.example", "metadata.example", "machine.example", "loopback.example"} {
			r := capture(t, s, fetch(name))
			if got := c.requests(); r.Success() || !hasConnect(r.Denied, name) || !slices.Equal(got, []string{"tcp://" + name + ":80"}) {
				t.Errorf("%s: %d %s, asked %q, denied %v", name, r.ExitCode, r.Stdout, got, r.Denied)
			}
		}
		r = capture(t, s, fetch(testnet.Private)+" && ! "+fetch(testnet.Metadata+":81"))
		c.mu.Lock()
		secret := len(c.asked) == 2 && c.asked[0].Secret
		c.mu.Unlock()
		if got := c.requests(); !r.Success() || !secret || !slices.Equal(got, []string{"tcp://10.1.2.3:80", "tcp://169.254.169.254:81"}) {
			t.Errorf("addresses: %d %s%s, secret %v, asked %q", r.ExitCode, r.Stdout, r.Stderr, secret, got)
		}
		if r := capture(t, s, fetch(testnet.Private)); !r.Success() || len(c.requests()) != 1 {
			t.Errorf("what was given once was not asked for by the next command: %s", r.Stderr)
		}
	})
}

// N2: given less, a connection has that and no more, and is not asked about again.
func TestAskNarrowed(t *testing.T) {
	c := &clerk{scope: grant.Session, host: "http://other.example/x"}
	eachAsking(t, c, func(t *testing.T, s *cloche.Session) {
		r := capture(t, s, fetch("other.example")+"; "+fetch("other.example")+"; ! "+strings.TrimSuffix(fetch("other.example"), "x"))
		if got := c.requests(); !r.Success() || len(got) != 1 || strings.Count(string(r.Stdout), "other.example") != 2 {
			t.Errorf("got %d %s%s, asked %q", r.ExitCode, r.Stdout, r.Stderr, got)
		}
	})
}

// N2: no is the refusal that it always was, on record and said once; a rule that
// denies, a datagram and a single request are not asked about.
func TestAskRefused(t *testing.T) {
	testenv.Need(t, "bash")
	c := &clerk{}
	eachAsking(t, c, func(t *testing.T, s *cloche.Session) {
		before := len(seen(t).Questions)
		r := capture(t, s, `curl -sS --max-time 120 http://other.example/; curl -sS --max-time 120 http://other.example/; `+fetchTLS("other.example", "")+`
bash -c 'exec 3<>/dev/tcp/other.example/2525; read -t 20 line <&3; echo "line $line"'
bash -c 'exec 3<>/dev/udp/other.example/7; echo x >&3'; true`)
		want := []string{"tcp://other.example:80", "tcp://other.example:443", "tcp://other.example:2525"}
		if got := c.requests(); !slices.Equal(got, want) || strings.Count(string(r.Stdout), "denied by cloche") != 2 || !strings.Contains(string(r.Stderr), "alert access denied") {
			t.Errorf("got %s%s, asked %q", r.Stdout, r.Stderr, got)
		}
		if strings.Contains(string(r.Stdout), "220") || slices.Contains(seen(t).Questions[before:], "other.example") {
			t.Errorf("something came out: %s", r.Stdout)
		}
		if !hasConnect(r.Denied, "other.example") || !slices.ContainsFunc(r.Notices, func(n plan.Notice) bool { return n.Kind == plan.NoticeGrantDenied }) {
			t.Errorf("denied %v, notices %v", r.Denied, r.Notices)
		}
	})
	dir := t.TempDir()
	p := policy.Workspace(dir).With(policy.WithBackend("native"), policy.AllowHosts("http://good.example/only"), policy.Set("network.deny", "other.example"))
	s, err := cloche.Open(t.Context(), p, c.option(), cloche.WithWorkspace(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := capture(t, s, fetch("other.example")+"; "+fetch("good.example")); r.Success() || len(c.requests()) > 0 {
		t.Errorf("somebody was asked: %s%s", r.Stdout, r.Stderr)
	}
}

// N2: a client that gives up takes its request along, and so does the end of the
// run, before and after the client said something.
func TestAskWithdrawn(t *testing.T) {
	c := &clerk{scope: later}
	eachAsking(t, c, func(t *testing.T, s *cloche.Session) {
		waits := func() bool { return len(s.Desk().Pending()) > 0 }
		withdrawn := func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.withdrawn > 0 && !waits() }
		in, steps := io.Pipe()
		go func() {
			testenv.Becomes(waits)
			fmt.Fprintln(steps, "end it")
			testenv.Becomes(withdrawn)
			fmt.Fprintln(steps, "go on")
			steps.Close()
		}()
		first := s.Command(t.Context(), "sh", "-c", `curl -sS http://other.example/ & read line; kill $!; wait; read line; echo after`)
		first.Stdin = in
		if r, err := first.Capture(); err != nil || string(r.Stdout) != "after\n" || !withdrawn() {
			t.Errorf("got %+v, %v, pending %v", r, err, s.Desk().Pending())
		}
		for _, script := range []string{"curl -sS http://other.example/; echo survived", "exec 3<>/dev/tcp/other.example/2525; read line <&3; echo survived"} {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { testenv.Becomes(waits); cancel() }()
			r, err := s.Command(ctx, "bash", "-c", script).Capture()
			cancel()
			if err != nil || !r.Canceled || len(r.Stdout) > 0 || len(s.Desk().Pending()) != 0 {
				t.Errorf("%s: %+v, %v, pending %v", script, r, err, s.Desk().Pending())
			}
		}
	})
}

// N2 N10: of commands that share a sandbox each is asked for by itself; and
// wrapped ones wait likewise.
func TestAskWarmSessions(t *testing.T) {
	c := &clerk{scope: grant.Once}
	s, _ := openSession(t, "native", cloche.WithWarm(), c.option())
	for range 2 {
		r := capture(t, s, fetch("other.example")+" && "+fetch("other.example"))
		if got := c.requests(); !r.Success() || len(got) != 1 {
			t.Errorf("got %d %s, asked %q", r.ExitCode, r.Stderr, got)
		}
	}
	c.scope = grant.Session
	for i := range 2 {
		r := capture(t, s, fetch("other.example"))
		if got := c.requests(); !r.Success() || len(got) != 1-i {
			t.Errorf("command %d: %d %s, asked %q", i, r.ExitCode, r.Stderr, got)
		}
	}
	c.work.Wait()
}

// A5 N2: through a proxy, and by the command line, a connection waits until cloche
// approve or a hook decides.
func TestAskByCommandLine(t *testing.T) {
	testenv.Need(t, "curl")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for _, link := range []string{"veth", "proxy"} {
			t.Run(link, func(t *testing.T) {
				in := s.with("--net", "user:"+link, "--ask")
				outcomes := make(chan *outcome, 1)
				go func() { outcomes <- in.run(t, "sh", "-c", fetch("other.example")) }()
				d, r := waiting(t, s.workspace)
				if r.Host != "tcp://other.example:80" || !strings.HasSuffix(r.Program, "curl") || !strings.Contains(r.Rule, "network.allow") {
					t.Errorf("the request is %+v", r)
				}
				if _, err := d.Decide(r.ID, grant.Decision{Allow: true, Host: "other.example"}); err == nil {
					t.Error("more was given than asked for")
				}
				if _, err := d.Decide(r.ID, grant.Decision{Allow: true, Scope: grant.Always}); err != nil {
					t.Fatal(err)
				}
				if o := <-outcomes; o.status != 0 || o.connected("other.example", 80) == nil || o.refused("other.example") {
					t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
				}
				if o := s.with("--net", "user:"+link).run(t, "sh", "-c", fetch("other.example")); o.status != 0 {
					t.Errorf("the next run: %s%s", o.stdout, o.stderr)
				}
				hook := filepath.Join(s.home, "hook")
				text := `#!/bin/sh
grep -q '"host":"tcp://six.example:80"' && echo '{"allow": true}' || echo '{}'
`
				if err := os.WriteFile(hook, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
				o := in.with("--ask-hook", hook).run(t, "sh", "-c", fetch("six.example")+" && ! "+fetch("four.example"))
				if o.status != 0 || !o.refused("four.example") {
					t.Errorf("by a hook: %d, %s%s", o.status, o.stdout, o.stderr)
				}
				if err := os.RemoveAll(filepath.Join(s.home, ".local")); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// waiting finds what a run in a workspace waits for, as cloche approve does.
func waiting(t *testing.T, workspace string) (desksocket.Desk, grant.Request) {
	t.Helper()
	var desk desksocket.Desk
	var request grant.Request
	testenv.Eventually(t, "a request at a desk", func() bool {
		desks, err := desksocket.Find()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range desks {
			for _, r := range d.Requests {
				if r.Workspace == workspace {
					desk, request = d, r
					return true
				}
			}
		}
		return false
	})
	return desk, request
}
