package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/internal/treewatch"
	"github.com/cloche-dev/cloche/plan"
)

// warm is the parked sandbox of a warm session, and what is needed to make and check it.
//
// # How a warm session works
//
// A warm session makes the sandbox once and parks it: the sandbox exists without a command,
// and each command then enters it. A backend that can do this is a [warmer].
//
// Parking (native) runs the same program of system calls as for a single command, up to the
// point where everything is mounted. The supervisor opens /proc/PID/ns/*, and the child ends.
// The open descriptors keep the namespaces alive: there is no process that could be killed,
// and when the supervisor dies, the sandbox is gone.
//
// Entering joins the user, mount, cgroup, network and UTS namespaces, forks into new pid,
// mount and IPC namespaces, mounts /proc, /dev/pts and private folders, and continues as for a
// single command: Landlock, capabilities, seccomp, init, command. For an ordinary user, each
// command has a user namespace inside the session's, because the kernel counts processes per
// user namespace.
//
// One init is kept ready: when a command has ended, the init for the next one is started
// (initprog.Config.Await) and waits at most a minute. The command is then a message with its
// arguments, environment, folder and standard descriptors. The waiting init is not used if the
// caller's umask, resource limits, priority or control group changed. Commands with a terminal
// or extra files make their own.
//
// With builtin.Together, commands also share the pid namespace, /proc, IPC and private
// folders. Each command has its own UTS namespace, which every process that it starts
// inherits: orphans in that namespace are killed when the command ends. If they fork faster
// than they can be killed for three seconds, the whole sandbox is killed.
//
// The layout is checked before each command. Files are hidden by a mount on their name, and a
// file that the host replaces is no longer hidden. So the paths that the resolver looked up
// are watched (package treewatch). The next command gets a new sandbox if one of them now
// points to another file, a hidden path has appeared, the search for files has other results,
// a variable that rules use has changed, or rules depend on the working folder and it is
// another one. Changes that no rule names are not noticed: a new socket or mount of the host.
// [Engine.Refresh] is for those.
//
// Commands of one session share the network namespace (with loopback and abstract
// sockets), the host name, the read-only layout, and the workspace.
type warm struct {
	engine *Engine

	mu     sync.Mutex
	closed bool
	// current is the sandbox that commands enter, or nil.
	current *park
	// programs are programs that a command has started and that are in folders which the
	// policy does not show.
	programs []string
	// cold, unless nil, is why commands run in sandboxes of their own.
	cold *coldError
	// outdated is why the last sandbox was dropped. The next command reports it in a notice.
	outdated string
}

// A warmer is a backend that can make a sandbox once and run many commands in it.
type warmer interface {
	// Park compiles a plan, with or without a command, into the launch of a parked sandbox:
	// the namespaces of Launch.Holds with everything mounted in them. It is pure.
	Park(*plan.Plan, *host.Snapshot, builtin.Sharing) (*backend.Launch, error)
	// Enter compiles the launch of one command in a parked sandbox. The sandbox was compiled
	// from the same plan, except for its command and environment. It is pure. like, unless
	// nil, is an earlier launch for a command with as many extra files and the same kind of
	// terminal; its program is reused.
	Enter(p *plan.Plan, s *host.Snapshot, how builtin.Sharing, like *backend.Launch) (*backend.Launch, error)
}

// A park is a parked sandbox and everything that commands in it have in common.
type park struct {
	backend warmer
	sharing builtin.Sharing
	snap    *host.Snapshot
	layout  *resolve.Layout
	sandbox *supervise.Parked
	watch   *treewatch.Watch
	net     *netservice.Service // nil if cloche serves no network
	review  *heldReview         // nil if the policy has no review
	// inspector is what looks inside TLS for a plan, or nil.
	inspector func(*plan.Plan) inspection.Inspector

	mu     sync.Mutex
	enters map[enterKind]*backend.Launch
}

// An enterKind is what distinguishes the programs of launches that enter a sandbox.
type enterKind struct {
	extraFiles int
	terminal   bool
}

// A coldError says why a session cannot keep a sandbox ready.
type coldError struct {
	why  string
	told atomic.Bool
}

func (e *coldError) Error() string { return "cloche: the session is not warm: " + e.why }

// Refresh makes the next command get a new sandbox. Running commands stay in the old one,
// which ends with the last of them.
func (e *Engine) Refresh() {
	e.warm.mu.Lock()
	defer e.warm.mu.Unlock()
	e.warm.drop()
}

// drop closes the current sandbox. The caller holds the lock.
func (w *warm) drop() {
	if w.current != nil {
		w.current.net.Unpublish() // the next sandbox publishes the same ports
		w.current.sandbox.Close()
		w.current.watch.Close()
		w.current = nil
	}
}

func (w *warm) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.drop()
}

// retire closes a sandbox that can no longer be used, unless it is closed already.
func (w *warm) retire(p *park) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == p {
		w.drop()
	}
}

// retireFor closes a sandbox whose layout does not fit a command, for example because the
// command's program is not visible in it.
func (w *warm) retireFor(p *park, why *resolve.LayoutError) {
	w.retire(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outdated = why.Reason
	if program := why.Program; program != "" && !slices.Contains(w.programs, program) {
		w.programs = append(w.programs, program)
	}
}

// prepare makes the plan and the launch in the parked sandbox. If there is none that fits, it
// parks one.
func (w *warm) prepare(ctx context.Context, c *Command) (*Prepared, error) {
	environ := c.Env
	if environ == nil {
		environ = w.engine.config.Environ()
	}
	var layout *resolve.LayoutError
	for range maxTries {
		p, err := w.acquire(ctx, environ, c.Dir)
		if err != nil {
			return nil, err
		}
		prepared, err := w.enter(p, c, environ)
		if err == nil {
			return prepared, nil
		}
		p.sandbox.Release()
		if !errors.As(err, &layout) {
			return nil, err
		}
		w.retireFor(p, layout)
	}
	return nil, fmt.Errorf("cloche: no sandbox can be parked for the command: %w; open the session without WithWarm", layout)
}

// enter makes the plan and the launch of a command in a parked sandbox.
func (w *warm) enter(p *park, c *Command, environ []string) (_ *Prepared, err error) {
	snap := *p.snap
	snap.Environ = environ
	r := c.request()
	r.Unchanged = true // acquire has checked that
	prepared := &Prepared{park: p}
	if prepared.Plan, err = p.layout.Command(r, &snap, c.Set); err != nil {
		return nil, err
	}
	if prepared.Launch, err = p.enter(prepared.Plan); err != nil {
		return nil, err
	}
	if why := w.tellOutdated(); why != "" {
		prepared.Plan = prepared.Plan.WithNotices(plan.Notice{Kind: plan.NoticeInfo,
			Text: "the session made a new sandbox, which shares nothing with the one before: " + why})
	}
	return prepared, nil
}

// tellOutdated returns once why the last sandbox was dropped.
func (w *warm) tellOutdated() (why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why, w.outdated = w.outdated, ""
	return why
}

// acquireCurrent acquires the current sandbox, or returns why no command can enter it any
// more. The caller holds the lock.
func (w *warm) acquireCurrent() (why string) {
	p := w.current
	if changed := p.watch.Changed(); changed != "" {
		return changed + " is not what it was"
	}
	if !w.engine.sameFound(p.snap) {
		return "files that the policy hides wherever they are found came or went"
	}
	if !p.sandbox.Acquire() {
		return "the first process of that one has ended"
	}
	return ""
}

// enter compiles the launch of a command.
func (p *park) enter(pl *plan.Plan) (*backend.Launch, error) {
	kind := enterKind{pl.Command.ExtraFiles, pl.Command.Terminal}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.backend.Enter(pl, p.snap, p.sharing, p.enters[kind])
	if err == nil {
		p.enters[kind] = l
	}
	return l, err
}

// acquire returns the parked sandbox. If there is none, or if it no longer fits the policy, it
// parks one. Concurrent commands wait for the one that parks it.
func (w *warm) acquire(ctx context.Context, environ []string, dir string) (*park, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return nil, ErrClosed
	case w.cold != nil:
		return nil, w.cold
	}
	if w.current != nil {
		if w.outdated = w.acquireCurrent(); w.outdated == "" {
			return w.current, nil
		}
	}
	w.drop()
	why := "its first process ends"
	for range maxTries {
		p, err := w.engine.newPark(ctx, environ, dir)
		if mayPass(err) {
			why = err.Error()
			continue
		}
		if err != nil {
			errors.As(err, &w.cold)
			return nil, err
		}
		w.current = p
		if p.sandbox.Acquire() {
			return p, nil
		}
	}
	return nil, errors.New("cloche: the sandbox cannot be parked: " + why)
}

// newPark makes a parked sandbox. The caller holds the lock.
func (e *Engine) newPark(ctx context.Context, environ []string, dir string) (*park, error) {
	if e.config.Policy.Privileged {
		return nil, &coldError{why: "the policy keeps the caller's privileges"}
	}
	snap, err := e.Snapshot(environ)
	if err != nil {
		return nil, err
	}
	snap = e.find(snap)
	p := &park{inspector: e.inspector, sharing: e.config.Sharing, snap: snap, enters: map[enterKind]*backend.Launch{}}
	chosen := e.Choose(snap)
	if chosen.Err != nil {
		return nil, chosen.Err
	}
	var ok bool
	if p.backend, ok = chosen.Backend.(warmer); !ok {
		return nil, &coldError{why: fmt.Sprintf("backend %s makes a sandbox for each command", chosen.Backend.Name())}
	}
	r, err := e.withInspection(ctx, chosen.request(resolve.Request{Dir: dir, Programs: e.warm.programs}), snap)
	if err != nil {
		return nil, err
	}
	r = e.request(r)
	if p.layout, err = resolve.ResolveLayout(e.Effective(), r, snap); err != nil {
		return nil, err
	}
	var proxy *bus.Proxy
	if p.layout.Plan, proxy, err = e.reserveBus(p.layout.Plan, environ); err != nil {
		return nil, err
	}
	if p.layout.Plan, p.review, err = e.beginReview(p.layout.Plan, chosen.Backend, snap.Dirs.State); err == nil {
		err = e.fillPark(ctx, p, proxy)
	}
	if err != nil {
		proxy.Close()
		p.review.release()
		if e.noteRefused(err, p.layout.Plan) {
			err = errors.Join(errReviewRefused, err)
		}
		return nil, err
	}
	proxy.EndWith(p.sandbox.Done())
	p.review.endWith(p.sandbox.Done())
	return p, nil
}

// fillPark makes the sandbox of a park whose layout is known.
func (e *Engine) fillPark(ctx context.Context, p *park, proxy *bus.Proxy) error {
	if err := e.startBus(ctx, proxy, p.layout.Plan); err != nil {
		return err
	}
	launch, err := p.backend.Park(p.layout.Plan, p.snap, p.sharing)
	if err != nil {
		return err
	}
	launch.Gaps = append(launch.Gaps, e.uninspected(p.layout.Plan, launch)...)
	if err := refuseGaps(p.layout.Plan, launch); err != nil {
		return err
	}
	return p.make(ctx, launch)
}

// make parks the sandbox. The watch is started before and checked afterwards, so that the
// mounted files are certainly those of the plan.
func (p *park) make(ctx context.Context, launch *backend.Launch) (err error) {
	watch, changed := treewatch.New(p.layout.Looked())
	if changed != "" {
		return &supervise.ChangedError{Path: changed, Err: errors.New("it changed while the plan was made")}
	}
	p.watch = watch
	if p.net, err = netservice.New(p.layout.Plan, launch, p.inspector(p.layout.Plan)); err != nil {
		watch.Close()
		return err
	}
	if p.sandbox, err = supervise.Park(ctx, launch, p.net.Maker()); err != nil {
		watch.Close()
		p.net.Close()
		return err
	}
	if changed := watch.Changed(); changed != "" {
		watch.Close()
		p.sandbox.Close()
		return &supervise.ChangedError{Path: changed, Err: errors.New("it changed while the sandbox was made")}
	}
	return nil
}
