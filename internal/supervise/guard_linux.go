package supervise

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/notify"
	"github.com/cloche-dev/cloche/plan"
)

// A guard is the broker of one run, or the error that prevented it.
type guard struct {
	broker *notify.Broker
	err    error // why there is no broker
}

// socketPair makes a pair of sockets: the supervisor's end and the child's.
func socketPair(kind int) (ours int, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socketpair", err)
	}
	return pair[0], os.NewFile(uintptr(pair[1]), "socket"), nil
}

// guardFor returns the guard of a launch, or nil if it has none. The guard takes over the
// socket and waits for the listener on it. The launched program sends the listener before the
// command runs, and the command's calls wait until they are answered. If the program itself
// executes the command, execve is one of these calls, so the guard must exist before the
// program runs.
func guardFor(spec *Spec, d *descriptors) *guard {
	if d.listener <= 0 {
		return nil
	}
	socket := d.listener
	d.listener = 0
	return guardAt(socket, spec)
}

// guardAt returns a guard that receives its listener on a socket.
func guardAt(socket int, spec *Spec) *guard {
	b, err := notify.Await(socket, spec.guarded())
	if err != nil {
		return &guard{err: err}
	}
	return &guard{broker: b}
}

// guardOn returns a guard whose listener is known. begin gives it the rules later, and
// answerUntil starts it. Before that, the init that waits for its command makes no call that
// needs an answer.
func guardOn(listener int) *guard { return &guard{broker: notify.Serve(listener)} }

// answerUntil answers the command's calls, unless a goroutine does so already, until fd is
// readable, which it reports, or until a time. After that they are answered in the background.
func (g *guard) answerUntil(fd int, until time.Time) (readable bool) {
	return g != nil && g.broker != nil && g.broker.AnswerUntil(fd, until)
}

// begin gives the guard the command's rules and umask, before the command can run. If that
// fails, the guard denies every call.
func (g *guard) begin(spec *Spec, umask int) {
	if g == nil || g.broker == nil {
		return
	}
	g.err = g.broker.Begin(spec.guarded(), umask)
}

// guarded returns the configuration of the run's broker.
func (s *Spec) guarded() notify.Config {
	l, rules := s.Launch, s.rules()
	return notify.Config{
		Judge: rules.judge, Masks: rules.masks, Plan: s.Plan, Asks: s.asks(), Lock: s.Lock,
		Roots: l.Guard.Roots, Reads: l.Guard.Reads, Records: l.Guard.Records,
	}
}

// rules are the rules of a broker, made from a plan when they are first needed.
type rules struct {
	paths []plan.Path
	judge func() *judge.Files
	masks func() *judge.Masks
}

func rulesOf(p *plan.Plan) *rules {
	return &rules{
		paths: p.Paths,
		judge: sync.OnceValue(func() *judge.Files { return judge.NewFiles(p) }),
		masks: sync.OnceValue(func() *judge.Masks { return judge.NewMasks(p) }),
	}
}

// rules returns the rules of the command's plan. Commands in a parked sandbox share them if
// they share the lines of their plans.
func (s *Spec) rules() *rules {
	if s.Parked == nil {
		return rulesOf(s.Plan)
	}
	if r := s.Parked.rules.Load(); r != nil && sameLines(r.paths, s.Plan.Paths) {
		return r
	}
	r := rulesOf(s.Plan)
	s.Parked.rules.Store(r)
	return r
}

// sameLines reports whether two lists are the same list in memory.
func sameLines(a, b []plan.Path) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// asks returns how the broker asks a person, or nil.
func (s *Spec) asks() *notify.Asks {
	if s.Ask == nil {
		return nil
	}
	return &notify.Asks{Plan: s.Plan, Ask: func(ctx context.Context, d plan.Denial) (notify.Given, bool) {
		line, until, ok := s.Ask(ctx, d)
		return notify.Given{Path: line, Until: until}, ok
	}}
}

// end stops the broker after the run, and returns its denials and the number of further ones.
// Call free afterwards.
func (g *guard) end() (denied []plan.Denial, more int, err error) {
	if g == nil {
		return nil, 0, nil
	}
	if g.broker == nil {
		return nil, 0, g.err
	}
	err = errors.Join(g.err, g.broker.Close())
	denied, more = g.broker.Denied()
	return denied, more, err
}

// denied returns the denials so far.
func (g *guard) denied() []plan.Denial {
	if g == nil || g.broker == nil {
		return nil
	}
	list, _ := g.broker.Denied()
	return list
}

// free releases the broker's resources.
func (g *guard) free() {
	if g != nil && g.broker != nil {
		g.broker.Free()
	}
}
