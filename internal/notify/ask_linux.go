//go:build amd64 || arm64

package notify

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Where somebody can be asked, a denied call is put aside with all that the broker has read of
// it, and its process waits. When the answer is there, the thread handles the call again, by
// what it has read before: what the process's memory says by then does not count. Each time
// the whole call is judged, so that the answer allows what was asked about and nothing else.

// asks are the calls that wait for an answer, and what was granted. A nil asks asks nobody.
type asks struct {
	*Asks
	base   func() *judge.Files
	ctx    context.Context // of the questions; canceled by close
	cancel context.CancelFunc
	wake   int // an eventfd: there is a call to handle again
	all    sync.WaitGroup

	mu    sync.Mutex
	ready []*call
	lines []Given
	// judge judges by the plan and the lines; nil as long as there are none.
	judge atomic.Pointer[judge.Files]
	until atomic.Int64 // when the first line expires; 0 is never
}

// maxQuestions bounds the questions about one call: a rename may need two.
const maxQuestions = 4

// startAsking prepares for questions, if anybody is to be asked.
func (b *Broker) startAsking() error {
	if b.config.Asks == nil {
		return nil
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	a := &asks{Asks: b.config.Asks, wake: wake}
	a.base = sync.OnceValue(func() *judge.Files { return judge.NewFilesWith(a.Plan, nil) })
	a.ctx, a.cancel = context.WithCancel(context.Background())
	b.asks = a
	b.config.Judge = a.current
	return nil
}

// close ends all questions.
func (a *asks) close() {
	if a == nil {
		return
	}
	a.cancel()
	a.all.Wait()
	unix.Close(a.wake)
}

// current is the judge that counts now.
func (a *asks) current() *judge.Files {
	if until := a.until.Load(); until != 0 && time.Now().UnixNano() >= until {
		a.changeLines(func(lines []Given) []Given {
			now := time.Now()
			return slices.DeleteFunc(lines, func(g Given) bool { return !g.Until.IsZero() && !now.Before(g.Until) })
		})
	}
	if j := a.judge.Load(); j != nil {
		return j
	}
	return a.base()
}

// changeLines changes the granted lines, and makes the judge for them.
func (a *asks) changeLines(change func([]Given) []Given) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = change(a.lines)
	first := int64(0)
	paths := make([]plan.Path, len(a.lines))
	for i, g := range a.lines {
		paths[i] = g.Path
		if n := g.Until.UnixNano(); !g.Until.IsZero() && (first == 0 || n < first) {
			first = n
		}
	}
	a.until.Store(first)
	if len(paths) == 0 {
		a.judge.Store(nil)
		return
	}
	a.judge.Store(judge.NewFilesWith(a.Plan, paths))
}

// given reports whether anything was granted.
func (a *asks) given() bool { return a != nil && a.judge.Load() != nil }

// gave reports whether a path can be used only because it was granted during the run: then the
// kernel still denies it, and the broker goes by the host's path.
func (a *asks) gave(path string) bool {
	return a.given() && a.current().Path(path).Access > a.base().Path(path).Access
}

// leadsTo reports whether something below a path was granted.
func (a *asks) leadsTo(path string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.lines, func(g Given) bool { return strings.HasPrefix(g.Path.Path, strings.TrimSuffix(path, "/")+"/") })
}

// replay handles the calls whose questions were answered. The thread calls it.
func (a *asks) replay() {
	var count [8]byte
	_, _ = unix.Read(a.wake, count[:])
	a.mu.Lock()
	list := a.ready
	a.ready = nil
	a.mu.Unlock()
	for _, c := range list {
		if c.valid() {
			c.domain = nil
			c.handle()
		}
	}
}

// askAbout puts a call aside that a rule denies, and asks. It returns false where nobody is
// asked, or somebody was asked about this path already: then the call is to be denied.
func (c *call) askAbout(op plan.Op, path string, v plan.Decision) bool {
	a := c.b.asks
	if a == nil || slices.Contains(c.asked, path) || len(c.asked) >= maxQuestions || !c.askable(op, path, v) {
		return false
	}
	c.asked = append(c.asked, path)
	v.Op, v.Path = op, path
	d := plan.Denial{Decision: v, Pid: c.pid, Program: c.program(), Count: 1}
	a.all.Go(func() { c.waitForAnswer(d) })
	return true
}

// askAboutHidden asks about a name that leads nowhere inside because a rule hides it. It
// returns false if no rule is the reason.
func (c *call) askAboutHidden(op plan.Op, name string) bool {
	if c.b.asks == nil || name == "" {
		return false
	}
	path, err := c.b.meaning(name)
	if err != nil {
		return false
	}
	v := c.b.config.Judge().Path(path)
	return v.Access == policy.Hidden && c.askAbout(op, path, v)
}

// askable reports whether a person could grant what is denied. Nobody can grant what git
// guards, links past a rule, and cloche's own files; nor what the host does not have, or the
// user could not do outside. With a review nobody can grant a change either: the broker would make it
// on the host.
func (c *call) askable(op plan.Op, path string, v plan.Decision) bool {
	if strings.HasPrefix(v.Rule, "git.") || v.Access == policy.Write || v.Protects() && v.Origin.Layer == policy.LayerBuiltin {
		return false
	}
	if op.Changes() && c.b.asks.Plan.Review != nil {
		return false
	}
	behind, ok := judge.FindBehind(c.b.asks.Plan, path)
	return ok && possible(op, behind.Path)
}

// possible reports whether an operation would find what it needs on the host.
func possible(op plan.Op, hostPath string) bool {
	access := uint32(unix.W_OK)
	switch op {
	case plan.OpRead, plan.OpExec:
		access = unix.R_OK
	case plan.OpWrite:
	default: // a name in its directory is made or removed
		hostPath = path.Dir(hostPath)
	}
	return unix.Faccessat(unix.AT_FDCWD, hostPath, access, unix.AT_EACCESS) == nil
}

// withdrawAfter is how soon a question ends whose process is gone.
const withdrawAfter = 100 * time.Millisecond

// waitForAnswer asks, waits as long as the process does, and hands the call back to the thread.
func (c *call) waitForAnswer(d plan.Denial) {
	a := c.b.asks
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	a.all.Go(func() {
		tick := time.NewTicker(withdrawAfter)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !c.valid() {
					cancel()
					return
				}
			}
		}
	})
	if given, ok := a.Ask(ctx, d); ok {
		if a.Plan.Review != nil { // see askable
			given.Access = min(given.Access, policy.Read)
		}
		a.changeLines(func(lines []Given) []Given { return append(lines, given) })
	}
	if ctx.Err() == nil {
		a.mu.Lock()
		a.ready = append(a.ready, c)
		a.mu.Unlock()
		addToEventfd(a.wake)
	}
}
