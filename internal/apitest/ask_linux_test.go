package apitest

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

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A clerk answers each request with what decide says, and remembers it. A nil
// answer leaves the request waiting.
type clerk struct {
	decide func(grant.Request) *grant.Decision

	mu        sync.Mutex
	asked     []grant.Request
	withdrawn int
}

func (c *clerk) Asked(d *grant.Desk, r grant.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r)
	c.mu.Unlock()
	if answer := c.decide(r); answer != nil {
		answer.By = "clerk"
		if _, err := d.Decide(r.ID, *answer); err != nil {
			panic(err)
		}
	}
}

func (c *clerk) Withdrawn(grant.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawn++
}

func (c *clerk) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, r := range c.asked {
		list = append(list, r.String())
	}
	return list
}

func allow(scope grant.Scope) func(grant.Request) *grant.Decision {
	return func(grant.Request) *grant.Decision { return &grant.Decision{Allow: true, Scope: scope} }
}

func deny(grant.Request) *grant.Decision { return &grant.Decision{} }

// An askPlace is a workspace beside folders that can be read, and not written.
type askPlace struct {
	ws, home, secret string
	policy           policy.Policy
}

func newAskPlace(t *testing.T, backend string) askPlace {
	t.Helper()
	base := workspace(t)
	p := askPlace{ws: base + "/ws", home: base + "/home", secret: base + "/home/private"}
	for _, dir := range []string{p.ws, p.home + "/.cache/x", p.secret} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, p.secret+"/key", "hush\n")
	writeFile(t, p.home+"/.cache/x/old", "old\n")
	t.Setenv("HOME", p.home)
	p.policy = policy.Workspace(p.ws).With(policy.WithBackend(backend), policy.AllowRead(base), policy.HidePaths(p.secret), policy.WithEnv("HOME", p.home))
	return p
}

// eachAsking runs a test on each backend that can hold a call, as the user that
// runs the test and as an ordinary one.
func eachAsking(t *testing.T, test func(t *testing.T, p askPlace)) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "landlock")...)
			test(t, newAskPlace(t, name))
		})
	}
}

func (p askPlace) open(t *testing.T, c *clerk, opts ...cloche.Option) *cloche.Session {
	t.Helper()
	return open(t, p.policy, p.ws, append(opts, cloche.WithAsk(grant.Options{Approvers: []grant.Approver{c}, Timeout: testenv.Patience}))...)
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// N2 A8: each call that changes files waits and then succeeds, with one question for
// the folder; nothing outside of what was given changes.
func TestAskChanges(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		c := &clerk{decide: allow(grant.Session)}
		s := p.open(t, c)
		r := capture(t, s, `set -e
cd ~/.cache/x
echo new >new; echo more >>new; cat new
mkdir -p a/b; ln -s ../old a/link; echo via >a/link
mv old older; mv new a/b/new
echo here >"$OLDPWD/mine"; mv "$OLDPWD/mine" theirs; mv theirs "$OLDPWD/back"
touch gone; rm gone; mkdir d; rmdir d; echo 12345 >t; truncate -s 3 t
for i in 1 2 3 4 5 6 7 8 9; do echo $i >many-$i; done`)
		if r.ExitCode != 0 || string(r.Stdout) != "new\nmore\n" {
			t.Fatalf("got %d, %q, %s; denied %v", r.ExitCode, r.Stdout, r.Stderr, r.Denied)
		}
		x := p.home + "/.cache/x"
		if got := read(t, x+"/older") + read(t, x+"/a/b/new") + read(t, x+"/t") + read(t, p.ws+"/back"); got != "via\nnew\nmore\n123here\n" {
			t.Errorf("on the host there is %q", got)
		}
		if got := c.requests(); !slices.Equal(got, []string{"write " + x}) {
			t.Errorf("asked %q", got)
		}
		if len(r.Denied) > 0 || !slices.ContainsFunc(r.Notices, func(n plan.Notice) bool { return n.Kind == plan.NoticeGranted && strings.Contains(n.Text, x) }) {
			t.Errorf("denied %v, notices %v", r.Denied, r.Notices)
		}
		// A session's grant is in the plan of the next command, where also those
		// calls see it that nobody holds.
		r = capture(t, s, "chmod 600 ~/.cache/x/t && touch -d @0 ~/.cache/x/t")
		if r.ExitCode != 0 || len(c.requests()) != 1 {
			t.Errorf("the next command: %s, asked %q", r.Stderr, c.requests())
		}
		if got, _ := s.Check("write", x+"/z"); !got.Allowed {
			t.Errorf("check says %+v", got)
		}
	})
}

// N2: what is hidden can be read once it is given, and only that.
func TestAskReads(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		writeFile(t, p.secret+"/other", "other\n")
		c := &clerk{decide: func(r grant.Request) *grant.Decision {
			return &grant.Decision{Allow: strings.HasSuffix(r.Path+r.File, "/key"), Path: p.secret + "/key"}
		}}
		s := p.open(t, c)
		r := capture(t, s, `cat ~/private/key; cat ~/private/key; cat ~/private/other ~/private/none; echo no >~/private/key; ln -s ~/private/other link; cat link`)
		if string(r.Stdout) != "hush\nhush\n" || strings.Contains(string(r.Stderr), "other\n") {
			t.Errorf("got %q, %s, asked %q", r.Stdout, r.Stderr, c.requests())
		}
		if read(t, p.secret+"/key") != "hush\n" {
			t.Error("it was written to, and only reading was given")
		}
		if got, _ := s.Check("read", p.secret+"/key"); got.Allowed {
			t.Error("what was given once is in the session's policy")
		}
	})
}

// N2 A7: a yes opens what it was asked for, whichever rule refused it, also where a
// smaller yes came before, and for the next command as well.
func TestAskAddsUp(t *testing.T) {
	rules := map[string]func(file string) policy.Option{
		"a pattern hides":   func(string) policy.Option { return policy.HidePaths("**/k*y") },
		"a rule hides":      func(file string) policy.Option { return policy.HidePaths(file) },
		"it is to be read":  func(file string) policy.Option { return policy.AllowRead(file) },
		"its folder is":     func(file string) policy.Option { return policy.AllowRead(filepath.Dir(file)) },
		"it is protected":   func(file string) policy.Option { return policy.ProtectPaths(file) },
		"a pattern is that": func(string) policy.Option { return policy.ProtectPaths("**/k*y") },
		"nobody trusts the rule": func(file string) policy.Option {
			return func(p *policy.Policy) {
				p.Paths = append(p.Paths, policy.PathRule{Path: file, Access: policy.Hidden, Origin: policy.Origin{Layer: policy.LayerProject, Untrusted: true}})
			}
		},
	}
	eachAsking(t, func(t *testing.T, p askPlace) {
		folder := p.home + "/data"
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, rule := range rules {
			t.Run(name, func(t *testing.T) {
				file := folder + "/key"
				writeFile(t, file, "1")
				p := p
				p.policy = p.policy.With(rule(file))
				c := &clerk{decide: allow(grant.Session)}
				s := p.open(t, c)
				for range 2 {
					if err := s.Command(t.Context(), "sh", "-c", `cat "$0" >/dev/null && printf 2 >> "$0"`, file).Run(); err != nil {
						t.Errorf("%v; asked for: %v", err, c.requests())
					}
				}
				if got := read(t, file); got != "122" {
					t.Errorf("%q; asked for: %v", got, c.requests())
				}
				if n := len(c.requests()); n == 0 || n > 2 {
					t.Errorf("asked for: %v", c.requests())
				}
			})
		}
	})
}

// N2: who is asked too often says no to all that the run asks for, and hears no more.
func TestAskFlood(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		for i := range 30 {
			writeFile(t, fmt.Sprintf("%s/.ssh/id%d", p.home, i), "s\n")
		}
		c := &clerk{decide: func(grant.Request) *grant.Decision { return &grant.Decision{Rest: true} }}
		s := p.open(t, c)
		r := capture(t, s, `cat ~/.ssh/id0; for i in $(seq 29); do cat ~/.ssh/id$i & done; echo x >~/.cache/x/f; wait`)
		denied := 0
		for _, n := range r.Notices {
			if n.Kind == plan.NoticeGrantDenied {
				denied++
			}
		}
		if len(c.requests()) != 1 || denied != 1 || len(r.Stdout) > 0 || len(r.Denied) != 31 {
			t.Errorf("asked %q, %d notices, %q, %d denied", c.requests(), denied, r.Stdout, len(r.Denied))
		}
		capture(t, s, `cat ~/.ssh/id0`)
		if len(c.requests()) != 2 {
			t.Errorf("the next command was asked about: %q", c.requests())
		}
	})
}

// N2: what has two names waits for both. A second name is given to what can be written
// under the first: what can only be read could be written by it.
func TestAskTwoNames(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		for _, name := range []string{"a/f", "a/g", "b/f", "kept/f"} {
			writeFile(t, p.home+"/"+name, name+"\n")
		}
		c := &clerk{decide: func(r grant.Request) *grant.Decision { return &grant.Decision{Allow: r.Path != p.home+"/kept"} }}
		r := capture(t, p.open(t, c), `mv ~/a/f ~/b/moved || echo "moved: $?"
echo w >w; ln w ~/b/w || echo "linked out: $?"; ln ~/b/f in || echo "linked in: $?"; ln ~/a/g ~/b/g || echo "linked: $?"
mv ~/kept/f ~/b/kept; mv ~/b/f ~/kept/g; ln ~/kept/f ~/b/kept; ln ~/kept/f kept`)
		if got := string(r.Stdout); got != "" {
			t.Errorf("%s%s", got, r.Stderr)
		}
		if got := read(t, p.home+"/b/moved") + read(t, p.home+"/b/w") + read(t, p.ws+"/in") + read(t, p.home+"/b/g"); got != "a/f\nw\nb/f\na/g\n" {
			t.Errorf("on the host there is %q", got)
		}
		for _, name := range []string{p.home + "/b/kept", p.home + "/kept/g", p.ws + "/kept"} {
			if _, err := os.Lstat(name); err == nil {
				t.Errorf("%s was made", name)
			}
		}
		if got, want := c.requests(), []string{"write " + p.home + "/a", "write " + p.home + "/b", "write " + p.home + "/kept"}; !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
	})
}

// N2: who gave less than was asked for is not asked for the rest again, in that run. A
// secret that may be read is asked about by itself still, and with the warning.
func TestAskLess(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		x, secret := p.home+"/.cache/x", p.home+"/.ssh/id"
		writeFile(t, p.home+"/read/f", "f\n")
		writeFile(t, secret, "s\n")
		p.policy = p.policy.With(policy.HidePaths(p.home + "/read"))
		c := &clerk{decide: func(r grant.Request) *grant.Decision {
			switch r.Path {
			case x:
				return &grant.Decision{Allow: true, Path: x + "/old"}
			case p.home + "/read":
				return &grant.Decision{Allow: true, Access: grant.Read}
			}
			return &grant.Decision{Allow: true}
		}}
		r := capture(t, p.open(t, c), `for i in 1 2 3; do echo n >~/.cache/x/new; echo w >>~/read/f; echo w >~/read/g; done; echo w >>~/.cache/x/old
cat ~/read/f ~/.ssh/id; echo w >>~/.ssh/id; cat ~/.ssh/id`)
		want := []string{"write " + x, "write " + p.home + "/read", "read " + secret, "write " + secret}
		if got := c.requests(); !slices.Equal(got, want) || string(r.Stdout) != "f\ns\ns\nw\n" || read(t, x+"/old") != "old\nw\n" {
			t.Errorf("asked %q, want %q; out came %q, %s", got, want, r.Stdout, r.Stderr)
		}
		for _, r := range c.asked {
			if r.Secret != (r.Path == secret) {
				t.Errorf("%s: secret %v (%s)", r.String(), r.Secret, r.Rule)
			}
		}
		if len(r.Denied) != 3 {
			t.Errorf("denied %v", r.Denied)
		}
	})
}

// N2 A8: no is as before, is recorded, and is not asked for again in the run.
func TestAskDenied(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		c, log := &clerk{decide: deny}, &recorder{}
		r := capture(t, p.open(t, c, cloche.WithAudit(log)), `for i in 1 2 3; do echo x >~/.cache/x/f$i; done; cat ~/private/key; mkdir ~/.cache/x/d; rm ~/.cache/x/old`)
		x := p.home + "/.cache/x"
		if got := c.requests(); !slices.Equal(got, []string{"write " + x, "read " + p.secret + "/key"}) && !slices.Equal(got, []string{"write " + x, "read " + p.secret}) {
			t.Errorf("asked %q", got)
		}
		if entries, _ := os.ReadDir(x); len(entries) != 1 || len(r.Stdout) > 0 {
			t.Errorf("there is %v, out came %q", entries, r.Stdout)
		}
		if len(r.Denied) < 5 || !slices.ContainsFunc(r.Notices, func(n plan.Notice) bool { return n.Kind == plan.NoticeGrantDenied }) {
			t.Errorf("denied %v, notices %v", r.Denied, r.Notices)
		}
		if events := log.kinds(audit.Grant); len(events) != 2 || events[0].Verdict != runlog.Deny || !strings.Contains(events[0].Error, "refused by clerk") {
			t.Errorf("the log has %+v", events)
		}
	})
}

// N2: cloche's own files are never asked about, nor what is not there, nor what
// the user has no right to.
func TestAskNever(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		t.Setenv("XDG_CONFIG_HOME", p.home+"/.config")
		writeFile(t, p.home+"/.config/cloche/policy.yaml", "version: 1\n")
		c := &clerk{decide: allow(grant.Once)}
		r := capture(t, p.open(t, c), `cat ~/.config/cloche/policy.yaml; echo x >>~/.config/cloche/policy.yaml; cat ~/private/none ~/nothing; echo x >/proc/sys/kernel/hostname; echo x >/sys/x`)
		if len(c.requests()) != 0 || len(r.Stdout) != 0 {
			t.Errorf("asked %q, out came %q", c.requests(), r.Stdout)
		}
	})
}

// N2: a process that is killed while it waits withdraws its request, and so does the end
// of the run.
func TestAskWithdrawn(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		c := &clerk{decide: func(grant.Request) *grant.Decision { return nil }}
		s := p.open(t, c)
		waits := func() bool { return len(s.Desk().Pending()) > 0 }
		withdrawn := func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.withdrawn == 1 && !waits() }
		in, steps := io.Pipe()
		go func() {
			testenv.Becomes(waits)
			fmt.Fprintln(steps, "kill it")
			testenv.Becomes(withdrawn)
			fmt.Fprintln(steps, "go on")
			steps.Close()
		}()
		first := s.Command(t.Context(), "sh", "-c", `(echo x >~/.cache/x/f) & read line; kill -9 $!; wait; read line; echo after`)
		first.Stdin = in
		if r, err := first.Capture(); err != nil || string(r.Stdout) != "after\n" || !withdrawn() {
			t.Errorf("got %+v, %v, pending %v, withdrawn %d", r, err, s.Desk().Pending(), c.withdrawn)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { testenv.Becomes(waits); cancel() }()
		if r, err := s.Command(ctx, "sh", "-c", `echo x >~/.cache/x/f; echo survived`).Capture(); err != nil || !r.Canceled || len(r.Stdout) > 0 {
			t.Errorf("the canceled run: %+v, %v", r, err)
		}
		if len(s.Desk().Pending()) != 0 {
			t.Errorf("still pending: %v", s.Desk().Pending())
		}
	})
}

// N2 N10: in warm sessions and for wrapped commands calls wait likewise.
func TestAskWarmAndWrapped(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock")
	p := newAskPlace(t, "native")
	c := &clerk{decide: allow(grant.Session)}
	s := p.open(t, c, cloche.WithWarm())
	for i := range 3 {
		if r := capture(t, s, "echo x >>~/.cache/x/warm"); r.ExitCode != 0 {
			t.Errorf("command %d: %s", i, r.Stderr)
		}
	}
	if len(c.requests()) != 1 {
		t.Errorf("asked %q", c.requests())
	}
	cmd := wrap(t, s, p.ws, "cat "+filepath.Join(p.secret, "key"))
	if out, err := cmd.Output(); err != nil || string(out) != "hush\n" {
		t.Errorf("wrapped: %q, %v", out, err)
	}
}

// N2 L6: a folder that was given gives nothing beyond it, by a link or by a name in
// it: secrets in it stay hidden, and cloche's own folder cannot be made there. So it
// is also where the rules about them said nothing new before.
func TestAskLinks(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		for name, reads := range map[string]policy.Reads{"host": policy.ReadsHost, "system": policy.ReadsSystem} {
			x, config := p.home+"/.cache/"+name, p.home+"/config-"+name
			t.Setenv("XDG_CONFIG_HOME", config)
			writeFile(t, x+"/deep/secret", "hush\n")
			if err := os.MkdirAll(config, 0o755); err != nil {
				t.Fatal(err)
			}
			q := p
			q.policy = policy.Workspace(p.ws).With(policy.WithBackend(p.policy.Backend.Name), policy.Set("reads", reads.String()), policy.HidePaths(p.secret, x+"/deep"), policy.WithEnv("HOME", p.home))
			if reads == policy.ReadsHost {
				q.policy = q.policy.With(policy.AllowRead(filepath.Dir(p.home)))
			} else { // all around is hidden, and what else is hidden in it says nothing new
				q.policy = q.policy.With(policy.Set("tmp", "shared"), policy.HidePaths(filepath.Dir(p.home)))
			}
			c := &clerk{decide: func(r grant.Request) *grant.Decision {
				return &grant.Decision{Allow: r.Path == x || strings.HasPrefix(r.Path, config) || strings.HasPrefix(r.Path, x+"/") && !strings.HasPrefix(r.Path, x+"/deep")}
			}}
			r := capture(t, q.open(t, c), "cd "+p.ws+`
X=`+x+` C=`+config+` P=`+p.secret+`
echo a >$X/a; mkdir $X/d; ln -s $P $X/out; ln -s $P/key $X/key; ln -s deep/secret $X/in
cat $X/out/key $X/key $X/in $X/deep/secret $X/d/../../../private/key
echo w >>$X/key; echo w >>$X/in; mv $X/deep $X/gone; rm $X/deep/secret; ln $X/deep/secret $X/hard; mv $X $X-away
mkdir $C/cloche; echo 'version: 1' >$C/cloche/policy.yaml; mkdir $C/new; echo w >$C/new/f
true`)
			if strings.Contains(string(r.Stdout), "hush") || read(t, x+"/deep/secret")+read(t, p.secret+"/key") != "hush\nhush\n" {
				t.Errorf("%s: the secret was read or changed: %q", name, r.Stdout)
			}
			if entries, _ := os.ReadDir(config + "/cloche"); len(entries) > 0 {
				t.Errorf("%s: cloche's own folder has %v", name, entries)
			}
			if read(t, x+"/a") != "a\n" {
				t.Errorf("%s: nothing was given: asked %q, %s", name, c.requests(), r.Stderr)
			}
		}
	})
}
