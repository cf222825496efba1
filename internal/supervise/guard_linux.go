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

// A guard is the broker of one run.
type guard struct {
	broker *notify.Broker
	err    error // why there is none
}

// socketPair makes a pair of sockets: our end and the child's.
func socketPair(kind int) (ours int, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socketpair", err)
	}
	return pair[0], os.NewFile(uintptr(pair[1]), "socket"), nil
}

// guardFor is the guard of a launch, or nil if nothing is to be judged. It waits for
// the listener on the socket, which it takes over. The launched program sends it
// before the command runs, and the command's calls wait until they are answered.
// Where the program itself executes the command, which is one of the calls that
// wait, the guard has to be there before the program runs.
func guardFor(spec *Spec, d *descriptors) *guard {
	if d.listener <= 0 {
		return nil
	}
	socket := d.listener
	d.listener = 0
	return guardAt(socket, spec)
}

// guardAt is a guard that receives its listener on a socket.
func guardAt(socket int, spec *Spec) *guard {
	b, err := notify.Await(socket, spec.guarded())
	if err != nil {
		return &guard{err: err}
	}
	return &guard{broker: b}
}

// guardOn is a guard whose listener is there. begin tells it the rules later, and
// answerUntil starts it; the init that awaits its command asks nothing before.
func guardOn(listener int) *guard { return &guard{broker: notify.Serve(listener)} }

// answerUntil answers the command's calls, if nobody does yet, until fd is readable,
// which it reports, or until a time. After that they are answered in the background.
func (g *guard) answerUntil(fd int, until time.Time) (readable bool) {
	return g != nil && g.broker != nil && g.broker.AnswerUntil(fd, until)
}

// begin tells a guard what the command is and which umask it has, before that can
// run. If it cannot be told, it refuses everything that it is asked.
func (g *guard) begin(spec *Spec, umask int) {
	if g == nil || g.broker == nil {
		return
	}
	g.err = g.broker.Begin(spec.guarded(), umask)
}

// guarded is what the broker of the run holds.
func (s *Spec) guarded() notify.Config {
	l, rules := s.Launch, s.rules()
	return notify.Config{
		Judge: rules.judge, Masks: rules.masks, Plan: s.Plan, Asks: s.asks(), Lock: s.Lock,
		Roots: l.Guard.Roots, Reads: l.Guard.Reads, Records: l.Guard.Records,
	}
}

// rules are what a broker goes by, made from a plan when it is first needed.
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

// rules are those of the command's plan. Commands in a parked sandbox share them,
// as they share the lines of their plans.
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

// sameLines reports whether two lists are one.
func sameLines(a, b []plan.Path) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// asks is who the broker asks, or nil.
func (s *Spec) asks() *notify.Asks {
	if s.Ask == nil {
		return nil
	}
	return &notify.Asks{Plan: s.Plan, Ask: func(ctx context.Context, d plan.Denial) (notify.Given, bool) {
		line, until, ok := s.Ask(ctx, d)
		return notify.Given{Path: line, Until: until}, ok
	}}
}

// end stops the broker once the run is over, and returns what it refused and how
// many more there were. free has to follow.
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

// denied is what was refused so far.
func (g *guard) denied() []plan.Denial {
	if g == nil || g.broker == nil {
		return nil
	}
	list, _ := g.broker.Denied()
	return list
}

// free lets go of what the broker holds.
func (g *guard) free() {
	if g != nil && g.broker != nil {
		g.broker.Free()
	}
}
