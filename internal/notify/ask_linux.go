//go:build amd64 || arm64

package notify

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Where somebody can be asked, a call that a rule refuses is put aside with all
// that the broker has read of it, and its process waits. When the answer is there,
// the loop handles the call once more, from its own copy: what the process's
// memory says by then does not count. Each time all of it is judged anew, so that
// the answer opens what was asked about and nothing else.

// asks are the calls that wait for somebody's answer, and what was given. A nil
// asks asks nobody.
type asks struct {
	*Asks
	base   func() *plan.Judge
	ctx    context.Context // of the questions; canceled by close
	cancel context.CancelFunc
	wake   int // an eventfd: there is a call to handle once more
	all    sync.WaitGroup

	mu    sync.Mutex
	ready []*call
	lines []Given
	// judge judges by the plan and the lines; nil as long as there are none.
	judge atomic.Pointer[plan.Judge]
	until atomic.Int64 // when the first line ends; 0 is never
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
	a.base = sync.OnceValue(func() *plan.Judge { return a.Plan.JudgeWith(nil) })
	a.ctx, a.cancel = context.WithCancel(context.Background())
	b.asks = a
	b.config.Judge = a.current
	return nil
}

// current is the judge that counts now.
func (a *asks) current() *plan.Judge {
	if until := a.until.Load(); until != 0 && time.Now().UnixNano() >= until {
		a.expire()
	}
	if j := a.judge.Load(); j != nil {
		return j
	}
	return a.base()
}

// give adds a line.
func (a *asks) give(g Given) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, g)
	a.renew()
}

// expire drops the lines whose time is over.
func (a *asks) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.lines = slices.DeleteFunc(a.lines, func(g Given) bool { return !g.Until.IsZero() && !now.Before(g.Until) })
	a.renew()
}

// renew makes the judge for the lines. The mutex is held.
func (a *asks) renew() {
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
	a.judge.Store(a.Plan.JudgeWith(paths))
}

// given reports whether anything was given.
func (a *asks) given() bool { return a != nil && a.judge.Load() != nil }

// gave reports whether a path can be used only because somebody gave it: then the
// kernel still refuses it, and the broker goes by the host's path.
func (a *asks) gave(path string) bool {
	return a.given() && a.current().Path(path).Access > a.base().Path(path).Access
}

// leadsTo reports whether something below a path was given.
func (a *asks) leadsTo(path string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.lines, func(g Given) bool { return strings.HasPrefix(g.Path.Path, strings.TrimSuffix(path, "/")+"/") })
}

// wakes is the descriptor that tells of calls to handle, or -1.
func (a *asks) wakes() int32 {
	if a == nil {
		return -1
	}
	return int32(a.wake)
}

// replay handles the calls whose questions were answered. It is called by the
// loop.
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

// answered hands a call back to the loop.
func (a *asks) answered(c *call) {
	a.mu.Lock()
	a.ready = append(a.ready, c)
	a.mu.Unlock()
	_, _ = unix.Write(a.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
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

// asksFirst puts a call aside that a rule refuses, and asks. It is false where
// nobody is asked, or was about this already: then the call is to be refused.
func (c *call) asksFirst(op plan.Op, path string, v plan.Verdict) bool {
	a := c.b.asks
	if a == nil || slices.Contains(c.kept.asked, path) || len(c.kept.asked) >= maxQuestions || !c.askable(op, path, v) {
		return false
	}
	c.kept.asked = append(c.kept.asked, path)
	d := plan.Denial{Op: op, Path: path, Pid: c.pid, Program: c.program(), Verdict: v, Count: 1}
	a.all.Go(func() { c.ask(d) })
	return true
}

// askable reports whether a person could give what is refused. What git guards,
// links past a rule and cloche's own files nobody gives; nor what the host does not have, or the
// user could not have outside.
func (c *call) askable(op plan.Op, path string, v plan.Verdict) bool {
	if strings.HasPrefix(v.Rule, "git.") || v.Access == policy.Write || v.Protects() && v.Origin.Layer == policy.LayerBuiltin {
		return false
	}
	behind, ok := c.b.asks.Plan.Behind(path)
	if !ok {
		return false
	}
	return possible(op, behind.Path)
}

// possible reports whether an operation would find what it needs on the host.
func possible(op plan.Op, hostPath string) bool {
	access := uint32(unix.W_OK)
	switch op {
	case plan.OpRead, plan.OpExec:
		access = unix.R_OK
	case plan.OpWrite:
	default: // a name of its folder is made or removed
		hostPath, _ = splitLast(hostPath)
	}
	return unix.Faccessat(unix.AT_FDCWD, hostPath, access, unix.AT_EACCESS) == nil
}

// asksUnseen asks about a name that leads nowhere inside because of a rule. It is
// false if no rule is the reason.
func (c *call) asksUnseen(op plan.Op, name string) bool {
	if c.b.asks == nil || name == "" {
		return false
	}
	path, err := c.b.meaning(name)
	if err != nil {
		return false
	}
	v := c.b.config.Judge().Path(path)
	return v.Access == policy.Hidden && c.asksFirst(op, path, v)
}

// unplaced answers a change of a name that leads nowhere inside with the error that
// was seen, unless somebody gives what it leads to outside.
func (c *call) unplaced(op plan.Op, dirfd int32, address uint64, err error) {
	if w, err := c.path(dirfd, address); err == nil {
		if c.asksUnseen(op, w.whole) {
			return
		}
		c.suspect(op, w.whole)
	}
	c.failSeen(dirfd, address, err)
}

// failSeen answers with an error that was seen when the path was looked up. The
// kernel might meet another state. In a guarded directory it would then say EACCES,
// whatever the rules say; elsewhere it goes on.
func (c *call) failSeen(dirfd int32, address uint64, err error) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		c.resume()
		return
	}
	if w, err := c.path(dirfd, address); err != nil || c.b.wouldGuard(w.whole) {
		c.fail(errno)
		return
	}
	c.resume()
}

// failAt is failSeen for a place that was found.
func (c *call) failAt(at *place, err error) {
	if c.b.guards(at.path()) {
		c.failWith(err)
		return
	}
	c.resume()
}

// writeOp is what an open for writing does to a name that leads nowhere.
func (o *openCall) writeOp() plan.Op {
	if o.flags&unix.O_CREAT != 0 {
		return plan.OpCreate
	}
	return plan.OpWrite
}

// withdrawAfter is how soon a question ends whose process is gone.
const withdrawAfter = 100 * time.Millisecond

// ask waits for the answer, as long as the process does.
func (c *call) ask(d plan.Denial) {
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
	given, ok := a.Ask(ctx, d)
	if ok {
		a.give(given)
	}
	if ctx.Err() == nil {
		a.answered(c)
	}
}

// kept is what a call remembers from one time that it is handled to the next.
type kept struct {
	text   text              // what was read first, if it was a string
	memory map[uint64]string // what was read, by its address
	names  map[string]string // what links of /proc meant
	asked  []string          // the paths that somebody was asked about
}

// A text is a string of the process.
type text struct {
	known   bool
	address uint64
	string  string
}

// text reads a string from the memory of the process, once.
func (c *call) text(address uint64) (string, error) {
	if t := c.kept.text; t.known && t.address == address {
		return t.string, nil
	}
	if s, ok := c.kept.memory[address]; ok {
		return s, nil
	}
	s, err := c.readText(address)
	if err == nil {
		c.keepText(address, s)
	}
	return s, err
}

// keepText spares most calls, which have one string, a map.
func (c *call) keepText(address uint64, s string) {
	if !c.kept.text.known {
		c.kept.text = text{known: true, address: address, string: s}
		return
	}
	c.keepMemory(address, s)
}

// readOnce is read for a call that may be handled again.
func (c *call) readOnce(address uint64, into []byte) (int, error) {
	if s, ok := c.kept.memory[address]; ok {
		return copy(into, s), nil
	}
	n, err := c.read(address, into)
	if err == nil {
		c.keepMemory(address, string(into[:n]))
	}
	return n, err
}

func (c *call) keepMemory(address uint64, s string) {
	if c.b.asks == nil {
		return
	}
	if c.kept.memory == nil {
		c.kept.memory = map[uint64]string{}
	}
	c.kept.memory[address] = s
}

// named is the path of what a link of the process in /proc means, once.
func (c *call) named(link string) (string, error) {
	if s, ok := c.kept.names[link]; ok {
		return s, nil
	}
	s, err := named(link)
	if err == nil && c.b.asks != nil {
		if c.kept.names == nil {
			c.kept.names = map[string]string{}
		}
		c.kept.names[link] = s
	}
	return s, err
}
