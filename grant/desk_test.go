package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// answers is an approver that decides at once, as it was set up.
type answers func(*Desk, Request)

func (f answers) Asked(d *Desk, r Request) { f(d, r) }
func (f answers) Withdrawn(Request)        {}

func decides(t *testing.T, d Decision) answers {
	return func(desk *Desk, r Request) {
		if _, err := desk.Decide(r.ID, d); err != nil {
			t.Errorf("decide: %v", err)
		}
	}
}

func ask(t *testing.T, o Options, r Request) (*Grant, error) {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	d := NewDesk(o)
	defer d.Close()
	return d.Ask(context.Background(), r)
}

// A5: the path is made real before anybody sees it.
func TestAskNormalizes(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	for asked, want := range map[string]string{
		dir + "/link/new":     dir + "/real/new",
		dir + "/link/../real": dir + "/real",
		"~/link":              dir + "/real",
		dir + "//real/.":      dir + "/real",
	} {
		var seen Request
		_, err := ask(t, Options{Approvers: []Approver{answers(func(d *Desk, r Request) {
			seen = r
			decides(t, Decision{Allow: true})(d, r)
		})}}, Request{Path: asked, Access: Read})
		if err != nil || seen.Path != want || seen.Written != asked {
			t.Errorf("%s: asked for %q (written %q), %v; want %q", asked, seen.Path, seen.Written, err, want)
		}
	}
}

// A5: a request that makes no sense says what is wrong, and nobody is asked.
func TestBadRequests(t *testing.T) {
	for _, r := range []Request{
		{Path: "relative", Access: Read},
		{Path: "", Access: Write},
		{Path: "/x\x00y", Access: Read},
		{Path: "/x", Access: "execute"},
		{Path: "/x", Host: "h", Access: Read},
		{Path: "/x", Host: "example.com", Access: Connect},
		{Host: "exa mple", Access: Connect},
		{Path: "/x", Access: Read, Reason: strings.Repeat("x", maxReason+1)},
	} {
		_, err := ask(t, Options{Approvers: []Approver{answers(func(*Desk, Request) { t.Errorf("%+v: somebody was asked", r) })}}, r)
		if err == nil || !strings.HasPrefix(err.Error(), "request: ") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%+v: %v, want a request error with a fix", r, err)
		}
	}
}

// A5: what is allowed already is answered at once.
func TestCoveredIsNotAsked(t *testing.T) {
	asked := answers(func(*Desk, Request) { t.Error("somebody was asked") })
	g, err := ask(t, Options{Approvers: []Approver{asked}, Covered: func(r *Request) (string, bool) { return "paths.read /data", r.Path == "/data/x" }},
		Request{Path: "/data/x", Access: Read})
	if err != nil || g.Path != "/data/x" || !strings.Contains(g.Reason, "paths.read /data") {
		t.Errorf("%+v, %v", g, err)
	}
}

// A5: no answer is no.
func TestTimeoutMeansNo(t *testing.T) {
	_, err := ask(t, Options{Timeout: time.Millisecond}, Request{Path: "/x", Access: Read})
	var denied *DeniedError
	if !errors.As(err, &denied) || !strings.Contains(denied.Why, "nobody decided") {
		t.Errorf("%v, want a denial for want of an answer", err)
	}
}

// A6: a decision gives what was asked for or less.
func TestNarrowing(t *testing.T) {
	for _, c := range []struct {
		request  Request
		decision Decision
		want     string // the grant, or empty for a decision that is refused
	}{
		{Request{Path: "/a", Access: Write}, Decision{}, "write /a (once)"},
		{Request{Path: "/a", Access: Write}, Decision{Access: Read, Scope: Session}, "read /a (session)"},
		{Request{Path: "/a", Access: Write}, Decision{Path: "/a/b"}, "write /a/b (once)"},
		{Request{Path: "/a", Access: Write}, Decision{Path: "/a/b/../c"}, "write /a/c (once)"},
		{Request{Path: "/a", Access: Read}, Decision{Access: Write}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Path: "/"}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Path: "/ab"}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Path: "/a/../b"}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Access: Connect}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Host: "example.com"}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Scope: "ever"}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Scope: Timed}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Scope: Once, For: time.Hour}, ""},
		{Request{Path: "/a", Access: Read}, Decision{Scope: Always}, ""}, // there is no store
		{Request{Host: "example.com", Access: Connect}, Decision{Host: "example.com:443"}, "connect example.com:443 (once)"},
		{Request{Host: "example.com:443", Access: Connect}, Decision{Host: "example.com"}, ""},
		{Request{Host: "*.example.com", Access: Connect}, Decision{Host: "a.example.com"}, "connect a.example.com (once)"},
		{Request{Host: "*.example.com", Access: Connect}, Decision{Host: "aexample.com"}, ""},
		{Request{Host: "a.example.com", Access: Connect}, Decision{Host: "*.example.com"}, ""},
		{Request{Host: "10.0.0.0/8", Access: Connect}, Decision{Host: "10.1.0.0/16"}, "connect 10.1.0.0/16 (once)"},
		{Request{Host: "10.1.0.0/16", Access: Connect}, Decision{Host: "10.0.0.0/8"}, ""},
		{Request{Host: "*", Access: Connect}, Decision{Host: "10.0.0.1"}, ""},
		{Request{Host: "example.com", Access: Connect}, Decision{Path: "/a"}, ""},
	} {
		t.Run(c.request.String()+" "+fmt.Sprint(c.decision), func(t *testing.T) {
			c.decision.Allow = true
			desk := NewDesk(Options{Timeout: time.Minute})
			defer desk.Close()
			r := c.request
			p := wait(t, desk, r)
			g, err := desk.Decide(p.ID, c.decision)
			if c.want == "" {
				if err == nil || c.decision.Scope != Always && (!strings.HasPrefix(err.Error(), "decision on request ") || !strings.Contains(err.Error(), "; ")) {
					t.Errorf("%v, %v; want a decision error with a fix", g, err)
				}
				if len(desk.Pending()) != 1 {
					t.Error("the request does not wait any more")
				}
				return
			}
			if err != nil || g.String() != c.want {
				t.Errorf("%v, %v; want %s", g, err, c.want)
			}
		})
	}
}

// wait asks in the background, and returns the request once it waits.
func wait(t *testing.T, d *Desk, r Request) Request {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { d.Ask(context.Background(), r) })
	t.Cleanup(func() { d.Close(); all.Wait() })
	testenv.Eventually(t, "the request comes to the desk", func() bool { return len(d.Pending()) > 0 })
	return d.Pending()[0]
}

// A7: once is for the run that asked, session for all of the desk.
func TestScopes(t *testing.T) {
	count := 0
	scope := Once
	d := NewDesk(Options{Approvers: []Approver{answers(func(d *Desk, r Request) {
		count++
		decides(t, Decision{Allow: true, Scope: scope})(d, r)
	})}})
	defer d.Close()
	for i, c := range []struct {
		run   string
		scope Scope
		asked int
	}{{"1", Once, 1}, {"1", Once, 1}, {"2", Session, 2}, {"3", Once, 2}, {"1", Once, 2}} {
		scope = c.scope
		if _, err := d.Ask(context.Background(), Request{Path: "/a/b", Access: Read, Run: c.run}); err != nil || count != c.asked {
			t.Errorf("%d: %v, asked %d times, want %d", i, err, count, c.asked)
		}
	}
	if _, err := d.Ask(context.Background(), Request{Path: "/a/b", Access: Write, Run: "1"}); err != nil || count != 3 {
		t.Errorf("writing was covered by a grant to read (asked %d times, %v)", count, err)
	}
}

// Equal requests are one question; who gives up does not take it from others.
func TestEqualRequestsAreAskedOnce(t *testing.T) {
	asked := make(chan Request, 10)
	d := NewDesk(Options{Timeout: time.Minute, Approvers: []Approver{answers(func(_ *Desk, r Request) { asked <- r })}})
	defer d.Close()
	results := make(chan error, 3)
	impatient, cancel := context.WithCancel(context.Background())
	for _, ctx := range []context.Context{context.Background(), context.Background(), impatient} {
		go func() {
			_, err := d.Ask(ctx, Request{Path: "/a", Access: Read})
			results <- err
		}()
	}
	r := <-asked
	for joined := 0; joined < 3; {
		d.mu.Lock()
		joined = d.waiting[r.ID].askers
		d.mu.Unlock()
	}
	cancel()
	if err := <-results; err == nil {
		t.Error("the one that gave up got a yes")
	}
	if _, err := d.Decide(r.ID, Decision{Allow: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("the others: %v", err)
		}
	}
	if len(asked) != 0 {
		t.Error("the same was asked twice")
	}
	if _, err := d.Decide(r.ID, Decision{}); !errors.Is(err, ErrNotPending) {
		t.Errorf("deciding again: %v", err)
	}
}

// Closing the desk refuses what waits and what comes.
func TestClose(t *testing.T) {
	d := NewDesk(Options{Timeout: time.Minute})
	done := make(chan error)
	go func() {
		_, err := d.Ask(context.Background(), Request{Path: "/a", Access: Read})
		done <- err
	}()
	testenv.Eventually(t, "the request comes to the desk", func() bool { return len(d.Pending()) > 0 })
	d.Close()
	var denied *DeniedError
	if err := <-done; !errors.As(err, &denied) {
		t.Errorf("waiting: %v", err)
	}
	if _, err := d.Ask(context.Background(), Request{Path: "/b", Access: Read}); !errors.As(err, &denied) {
		t.Errorf("afterwards: %v", err)
	}
}

// A command cannot fill a person's desk.
func TestPendingIsBounded(t *testing.T) {
	d := NewDesk(Options{Timeout: time.Minute})
	var all sync.WaitGroup
	defer all.Wait()
	defer d.Close()
	var refused sync.Map
	for i := range maxPending + 20 {
		all.Go(func() {
			_, err := d.Ask(context.Background(), Request{Path: fmt.Sprintf("/%d", i), Access: Read})
			refused.Store(i, err)
		})
	}
	testenv.Eventually(t, "20 requests are refused and the others wait", func() bool {
		n := 0
		refused.Range(func(any, any) bool { n++; return true })
		return n == 20 && len(d.Pending()) == maxPending
	})
}

// A7: every grant carries its provenance into the policy.
func TestOption(t *testing.T) {
	made := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	p := policy.Policy{}.With(
		(&Grant{ID: "abc", Path: "/data", Access: Write, By: "ana", Reason: "the corpus", Made: made}).Option(),
		(&Grant{ID: "def", Host: "example.com:443", Access: Connect, By: "ana", Made: made}).Option())
	rule := p.Paths[len(p.Paths)-1]
	if rule.Path != "/data" || rule.Access != policy.Write || rule.Origin.Layer != policy.LayerGrant || rule.Reason != "the corpus" {
		t.Errorf("path: %+v", rule)
	}
	if want := "grant abc by ana 2030-01-02 03:04"; rule.Origin.Source != want {
		t.Errorf("origin %q, want %q", rule.Origin.Source, want)
	}
	if p.Network.Mode != policy.NetworkUser || len(p.Network.Allow) != 1 || p.Network.Allow[0].Port != 443 {
		t.Errorf("network: %+v", p.Network)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

// What is given once is given to the run that asked: another that waits for the same
// is asked about by itself, in its own words. What is given for longer answers both,
// and all else that it covers.
func TestAnswersToOthersThatWait(t *testing.T) {
	for scope, want := range map[Scope]int{Once: 3, Session: 1} {
		d := NewDesk(Options{Timeout: time.Minute})
		defer d.Close()
		first := wait(t, d, Request{Path: "/a", Access: Write, Run: "1", Workspace: "/w"})
		results := make(chan error, 2)
		for _, r := range []Request{{Path: "/a", Access: Write, Run: "2", Workspace: "/w"}, {Path: "/a/b", Access: Read, Run: "3", Workspace: "/w"}} {
			go func() {
				g, err := d.Ask(context.Background(), r)
				if err == nil && g.Scope == Once && g.Run != r.Run {
					err = errors.New("it got what was given to another run")
				}
				results <- err
			}()
		}
		go func() {
			_, _ = d.Ask(context.Background(), Request{Path: "/a", Access: Read, Workspace: "/other", Run: "4"})
		}()
		testenv.Eventually(t, "four requests wait", func() bool { return len(d.Pending()) >= 4 })
		decisions := 0
		for id := first.ID; id != ""; decisions++ {
			if _, err := d.Decide(id, Decision{Allow: true, Scope: scope}); err != nil {
				t.Fatal(err)
			}
			id = ""
			testenv.Eventually(t, "the next request of the workspace, or both answers", func() bool {
				for _, r := range d.Pending() {
					if r.Workspace == "/w" {
						id = r.ID
					}
				}
				return id != "" || len(results) == 2
			})
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("%s: %v", scope, err)
			}
		}
		if list := d.Pending(); decisions != want || len(list) != 1 || list[0].Workspace != "/other" {
			t.Errorf("%s: decided %d times, want %d; still waiting: %v", scope, decisions, want, list)
		}
	}
}

// A7: what is revoked in the store is over for the desk that gave it, too.
func TestRevokedAtTheDesk(t *testing.T) {
	store := OpenStore(t.TempDir())
	asked := 0
	d := NewDesk(Options{Store: store, Approvers: []Approver{answers(func(d *Desk, r Request) {
		asked++
		_, _ = d.Decide(r.ID, Decision{Allow: true, Scope: Always})
	})}})
	defer d.Close()
	for i := range 3 {
		g, err := d.Ask(context.Background(), Request{Path: "/a", Access: Read, Workspace: "/w"})
		if err != nil || len(d.Grants()) != 1 {
			t.Fatalf("%v, %v", d.Grants(), err)
		}
		if i == 1 {
			if _, err := store.Revoke(g.ID); err != nil || len(d.Grants()) != 0 {
				t.Errorf("after it was revoked: %v, %v", d.Grants(), err)
			}
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// A name that is not text is not kept: the store would have another one.
func TestNamesThatAreNotText(t *testing.T) {
	store := OpenStore(t.TempDir())
	d := NewDesk(Options{Timeout: time.Minute, Store: store})
	r := wait(t, d, Request{Path: "/a/\xff", Access: Read})
	if _, err := d.Decide(r.ID, Decision{Allow: true, Scope: Always}); err == nil || !strings.Contains(err.Error(), "choose once or session") {
		t.Errorf("%v", err)
	}
	if g, err := d.Decide(r.ID, Decision{Allow: true}); err != nil || g.Path != "/a/\xff" {
		t.Errorf("%+v, %v", g, err)
	}
	if list, err := store.List(); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// N2: a no to the rest answers all that the run asks for, now and later, and no other
// run. Nothing is given that way.
func TestRefuseTheRest(t *testing.T) {
	var asked atomic.Int32
	d := NewDesk(Options{Timeout: time.Minute, Approvers: []Approver{answers(func(*Desk, Request) { asked.Add(1) })}})
	first := wait(t, d, Request{Path: "/a", Access: Read, Run: "1"})
	results := make(chan error, 1)
	go func() {
		_, err := d.Ask(context.Background(), Request{Path: "/b", Access: Read, Run: "1"})
		results <- err
	}()
	go func() { _, _ = d.Ask(context.Background(), Request{Path: "/b", Access: Read, Run: "2"}) }()
	testenv.Eventually(t, "three requests wait", func() bool { return len(d.Pending()) >= 3 })
	if _, err := d.Decide(first.ID, Decision{Allow: true, Rest: true}); err == nil {
		t.Error("all was given")
	}
	if _, err := d.Decide(first.ID, Decision{Rest: true, By: "ana"}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Ask(context.Background(), Request{Path: "/c", Access: Read, Run: "1"})
	var denied *DeniedError
	if !errors.As(err, &denied) || !denied.Rest || denied.By != "ana" {
		t.Errorf("what came later: %v", err)
	}
	if err := <-results; !errors.As(err, &denied) || !denied.Rest {
		t.Errorf("what waited: %v", err)
	}
	if list := d.Pending(); len(list) != 1 || asked.Load() != 3 {
		t.Errorf("still waiting: %v; asked %d times", list, asked.Load())
	}
}
