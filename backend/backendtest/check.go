package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

// A check is one test case while it runs. It has three folders below a folder that is
// readable inside: the workspace, a home folder, and one that is neither.
type check struct {
	ctx     context.Context
	cancel  context.CancelFunc
	tc      testCase
	entry   backend.Entry
	options Options
	makeDir func() string
	// token is in the arguments of every process that the case starts.
	token string

	base, ws, home, outside string

	errors, logs []string
	skipped      string

	// mu guards cleanups: changes on the host while a probe runs are made by another
	// goroutine.
	mu       sync.Mutex
	cleanups []func()
}

func newToken() string { return "cloche-" + strings.ToLower(rand.Text()[:12]) }

// layOut makes the folders of the case.
func (c *check) layOut() {
	base, err := filepath.EvalSymlinks(c.makeDir())
	c.must(err)
	c.base = base
	for _, d := range []struct {
		dir  *string
		name string
	}{{&c.ws, "ws"}, {&c.home, "home"}, {&c.outside, "outside"}} {
		*d.dir = filepath.Join(base, d.name)
		c.must(os.Mkdir(*d.dir, 0o755))
	}
}

func (c *check) cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

func (c *check) cleanUp() {
	for _, f := range slices.Backward(c.cleanups) {
		f()
	}
	if c.base == "" {
		return
	}
	// A case may leave folders that cannot be entered.
	_ = filepath.WalkDir(c.base, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o755)
		}
		return nil
	})
	for _, d := range []string{c.ws, c.home, c.outside} {
		if err := os.RemoveAll(d); err != nil {
			c.Errorf("cannot remove %s after the case: %v", d, err)
		}
	}
}

// file creates a file with the text, and the folders above it, and returns its path.
func (c *check) file(text string, elem ...string) string {
	p := filepath.Join(elem...)
	c.must(os.MkdirAll(filepath.Dir(p), 0o755))
	c.must(os.WriteFile(p, []byte(text), 0o644))
	return p
}

// dir creates a folder and returns its path.
func (c *check) dir(elem ...string) string {
	p := filepath.Join(elem...)
	c.must(os.MkdirAll(p, 0o755))
	return p
}

// holds fails the case unless a file on the host contains exactly the text.
func (c *check) holds(p, text string) {
	got, err := os.ReadFile(p)
	if err != nil || string(got) != text {
		c.Errorf("%s on the host holds %q (%v), want %q", p, got, err, text)
	}
}

// absent fails the case if the path exists on the host.
func (c *check) absent(p string) {
	if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
		c.Errorf("%s is on the host (%v)", p, err)
	}
}

// A box is a sandbox that a case runs commands in.
type box struct {
	c         *check
	policy    policy.Policy
	workspace string
	// environ is the caller's environment.
	environ []string
	// session is the session in which the last command was prepared.
	session *cloche.Session
	// adjust, unless nil, changes the command before it starts.
	adjust func(*cloche.Cmd)
}

// box returns a sandbox with the preset "workspace" and the options. The case's folders
// are readable.
func (c *check) box(opts ...policy.Option) *box {
	return c.preset("workspace", append([]policy.Option{policy.AllowRead(c.base)}, opts...)...)
}

// preset returns a sandbox with a preset and the options.
func (c *check) preset(name string, opts ...policy.Option) *box {
	p, err := policy.FromPreset(name)
	c.must(err)
	p = p.With(policy.WithBackend(c.entry.Backend.Name())).With(opts...)
	return &box{c: c, policy: p, workspace: c.ws, environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home}}
}

// snapshot describes this machine, but with the case's home folder and environment.
func (b *box) snapshot() (*host.Snapshot, error) {
	s, err := machine.Collect(b.workspace)
	if err != nil {
		return nil, err
	}
	s.Home = b.c.home
	s.Environ = b.environ
	s.Dirs = ownDirs(b.c.home)
	return s, nil
}

// ownDirs are cloche's own folders in a home folder.
func ownDirs(home string) host.Dirs {
	return host.Dirs{
		Config: filepath.Join(home, ".config/cloche"), Data: filepath.Join(home, ".local/share/cloche"),
		State: filepath.Join(home, ".local/state/cloche"), Cache: filepath.Join(home, ".cache/cloche"),
	}
}

// open opens a session for the box.
func (b *box) open(strength policy.Strength) *cloche.Session {
	s, err := b.newSession(strength)
	if err != nil {
		b.c.Fatalf("the session cannot be opened: %v", err)
	}
	return s
}

// tryOpen opens a session, or returns nil if the policy is refused.
func (b *box) tryOpen() *cloche.Session {
	s, err := b.newSession(policy.BestEffort)
	if err != nil {
		b.c.Logf("refused: %v", err)
	}
	return s
}

func (b *box) newSession(strength policy.Strength) (*cloche.Session, error) {
	snap, err := b.snapshot()
	b.c.must(err)
	registry, err := backend.NewRegistry(b.c.entry)
	b.c.must(err)
	opts := []cloche.Option{cloche.WithRegistry(registry), cloche.WithWorkspace(b.workspace), cloche.WithHost(snap)}
	s, err := cloche.Open(b.c.ctx, b.policy.With(policy.WithRequire(strength)), append(opts, b.c.options.session()...)...)
	if err == nil {
		b.c.cleanup(func() { s.Close() })
	}
	return s, err
}

// command prepares a command. It first checks the gaps of the backend: if there is one
// that the case is about, it checks that a strict policy is refused for it, and ends
// the case.
func (b *box) command(name string, args ...string) *cloche.Cmd {
	c := b.c
	trial := b.open(policy.BestEffort).Command(c.ctx, name, args...)
	b.prepare(trial)
	launch, err := trial.Launch()
	if err != nil {
		c.Fatalf("the plan cannot be compiled: %v", err)
	}
	if !launch.Confined {
		c.Fatalf("the backend confines nothing, and a strict policy is not refused for it")
	}
	strength := policy.Strict
	for _, g := range launch.Gaps {
		if c.about(g.Rule) && !g.Optional {
			b.refuses(g, name, args...)
		}
		strength = policy.BestEffort
	}
	b.session = b.open(strength)
	b.warmUp(b.session)
	cmd := b.session.Command(c.ctx, name, args...)
	b.prepare(cmd)
	return cmd
}

func (b *box) prepare(cmd *cloche.Cmd) {
	cmd.Env = b.environ
	if b.adjust != nil {
		b.adjust(cmd)
	}
}

// about reports whether a gap in a rule matters to the case.
func (c *check) about(rule string) bool {
	return slices.ContainsFunc(c.tc.rules, func(r string) bool {
		return r == rule || strings.HasPrefix(r, rule+".")
	})
}

// refuses checks that a strict policy is refused for a gap, and ends the case.
func (b *box) refuses(g backend.Gap, name string, args ...string) {
	cmd := b.open(policy.Strict).Command(b.c.ctx, name, args...)
	b.prepare(cmd)
	_, err := cmd.Capture()
	var gap *cloche.GapError
	if !errors.As(err, &gap) || !slices.ContainsFunc(gap.Gaps, func(x backend.Gap) bool { return x.Rule == g.Rule }) {
		b.c.Fatalf("the backend declares a gap (%s), and a strict policy is not refused for it: %v", g, err)
	}
	b.c.Logf("gap declared: %s", g)
	b.c.leave()
}

// run runs a command to its end.
func (b *box) run(name string, args ...string) *cloche.Result {
	r, err := b.command(name, args...).Capture()
	if err != nil {
		b.c.Fatalf("%s did not run: %v", name, err)
	}
	return r
}
