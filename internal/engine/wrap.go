package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
	"weak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// wrappedName is the prefix of a wrapped command's Args[0], so that `ps` shows it.
const wrappedName = "cloche:"

// Wrap rewrites a prepared command so that it runs under the policy when the caller starts it.
// refused is called with the error if it turns out later that the command cannot run.
func (e *Engine) Wrap(c *exec.Cmd, run *runlog.Run, refused func(error)) (err error) {
	for range maxTries {
		if err = e.tryWrap(c, run, refused); !mayPass(err) {
			break
		}
	}
	return err
}

func (e *Engine) tryWrap(c *exec.Cmd, run *runlog.Run, refused func(error)) error {
	p, launch, err := e.wrapLaunch(c)
	if err != nil {
		return err
	}
	if err := run.Wrapped(p, launch); err != nil {
		return err
	}
	if !launch.Confined {
		e.markWrapped(c, newWrapRecord(p, launch, run, nil))
		c.Env = launch.Env
		return nil
	}
	line, err := e.wrapLifeline()
	if err != nil {
		return err
	}
	net, err := netservice.New(p, launch, e.inspector(p))
	if err != nil {
		return err
	}
	ask := e.askerFor(p, run)
	record := newWrapRecord(p, launch, run, net.Join(run, asksHosts(ask)))
	spec := supervise.Spec{Launch: launch, Plan: p, Refused: record.end, Ask: asks(ask), Lock: e.lockFile(), Command: p.Command.Path, Network: run.EndingWith(net.Maker()), NoNetwork: net.Unused(refused)}
	if err := supervise.Wrap(c, spec, line.reader, wrappedName+launch.Backend); err != nil {
		net.Close()
		return fmt.Errorf("cloche: Wrap: %w", err)
	}
	e.markWrapped(c, record)
	return nil
}

// wrapLaunch makes the plan and the launch for a prepared command.
func (e *Engine) wrapLaunch(c *exec.Cmd) (p *plan.Plan, launch *backend.Launch, err error) {
	snap, err := e.Snapshot(c.Env)
	if err != nil {
		return nil, nil, err
	}
	dir := c.Dir
	if dir == "" {
		dir = snap.Cwd
	}
	chosen := e.Choose(snap)
	if name := e.Effective().Review; name != "" && chosen.Unconfined == nil {
		return nil, nil, fmt.Errorf("cloche: Wrap: the policy has the review %s, and a wrapped command may start at any time, when the review is in use; start it with Session.Command", name)
	}
	r := chosen.request(resolve.Request{Name: c.Path, Args: c.Args, Dir: dir, ExtraFiles: len(c.ExtraFiles)})
	if r, err = e.withInspection(context.Background(), r, snap); err != nil {
		return nil, nil, err
	}
	p, err = e.Resolve(e.Effective(), snap, r)
	if err != nil {
		return nil, nil, err
	}
	if p, err = e.wrapBus(p, chosen, snap); err != nil {
		return nil, nil, err
	}
	launch, err = e.compile(chosen, p, snap)
	if err == nil && launch.SealNodes {
		launch.Gaps = append(launch.Gaps, nodesGap)
		err = refuseGaps(p, launch)
	}
	return p, launch, err
}

// nodesGap: for a command that cloche starts, the thread that starts bubblewrap makes the
// host's device nodes read-only (see builtin.Extras.SealNodes). The caller of a wrapped
// command has no such thread.
var nodesGap = backend.Gap{
	Rule: "device nodes", Subject: "/dev", Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: devices"},
	Reason: "a wrapped command of root could change mode and owner of the host's device nodes, such as /dev/null, which bubblewrap shows",
	Fix:    "use the backend native, or start the command with Session.Command",
}

// IsWrapped reports whether a command was wrapped before. A command that any engine confined
// is recognized by its Args[0], one that this engine left unconfined by its address.
func (e *Engine) IsWrapped(c *exec.Cmd) bool {
	if len(c.Args) > 0 && strings.HasPrefix(c.Args[0], wrappedName) {
		return true
	}
	return e.recordOf(c) != nil
}

func (e *Engine) recordOf(c *exec.Cmd) *wrapRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrapped[weak.Make(c)]
}

func (e *Engine) markWrapped(c *exec.Cmd, record *wrapRecord) {
	p := weak.Make(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wrapped == nil {
		e.wrapped = map[weak.Pointer[exec.Cmd]]*wrapRecord{}
	}
	e.wrapped[p] = record
	runtime.AddCleanup(c, e.forgetWrapped, p)
}

func (e *Engine) forgetWrapped(p weak.Pointer[exec.Cmd]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.wrapped, p)
}

// A wrapRecord is the record of the denials of a wrapped command.
type wrapRecord struct {
	plan *plan.Plan
	run  *runlog.Run
	net  *netservice.Record // nil if cloche serves no network
	done chan struct{}      // closed when the broker's denials are final
	// denied and more are the broker's denials.
	denied []plan.Denial
	more   int
}

// newWrapRecord returns the record for a launch. Without a broker it only has the network's
// denials.
func newWrapRecord(p *plan.Plan, l *backend.Launch, run *runlog.Run, net *netservice.Record) *wrapRecord {
	r := &wrapRecord{plan: p, run: run, net: net, done: make(chan struct{})}
	if l.Guard == nil {
		close(r.done)
	}
	return r
}

func (r *wrapRecord) end(denied []plan.Denial, more int) {
	finish(denied, r.plan)
	r.denied, r.more = denied, more
	r.run.WrappedRefusals(r.all())
	close(r.done)
}

// all returns the broker's denials, then the network's.
func (r *wrapRecord) all() (denied []plan.Denial, more int) {
	net := r.net.Summary()
	redactAll(net.Denied)
	return slices.Concat(r.denied, net.Denied), r.more + net.DeniedMore
}

// wrapEnd is how long WrappedDenied waits for the last processes of a command that has ended.
const wrapEnd = 2 * time.Second

// WrappedDenied returns the denials of a wrapped command that has been waited for, and the
// number of further denials.
func (e *Engine) WrappedDenied(c *exec.Cmd) (denied []plan.Denial, more int) {
	r := e.recordOf(c)
	if r == nil || c.ProcessState == nil {
		return nil, 0
	}
	select {
	case <-r.done:
		return r.all()
	case <-time.After(wrapEnd):
		return nil, 0
	}
}

// A lifeline is a pipe that wrapped commands watch. When the engine is closed or this process
// ends, they read end of file and end.
type lifeline struct {
	reader, writer *os.File
}

func (e *Engine) wrapLifeline() (*lifeline, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if e.lifeline == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("cloche: Wrap: %w", err)
		}
		e.lifeline = &lifeline{r, w}
	}
	return e.lifeline, nil
}

func (l *lifeline) close() error { return errors.Join(l.writer.Close(), l.reader.Close()) }
