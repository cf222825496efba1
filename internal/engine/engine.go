// Package engine turns a policy into a running command. Each session of package cloche has an
// engine.
//
// An [Engine] belongs to one policy. For each command it
//
//  1. collects the facts about the machine ([Engine.Snapshot]) and searches for files to hide;
//  2. chooses the backend ([Engine.Choose]);
//  3. makes the plan (package resolve) and has the backend compile it into a launch;
//  4. starts that launch (package supervise) with the network, the session bus and
//     the asker, which asks a person about denials.
//
// A command has a sandbox of its own, or enters one that was made before ([warm]). Both give a
// [Prepared], and everything after that is the same.
package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/asking"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Config is what an engine is made from.
type Config struct {
	// Policy has been validated. Its lists must not be changed while the engine is used.
	Policy    policy.Policy
	Workspace string // absolute
	// RealWorkspace: no symbolic link may be on the way to the workspace.
	RealWorkspace bool
	Document      string
	// PolicyFiles and OwnPrograms are files that no command may write.
	PolicyFiles, OwnPrograms []string
	// Files are texts by path that are shown to commands as files. The host does not have
	// these files.
	Files map[string]string
	// Hooks are programs that decide requests outside of the sandbox.
	Hooks []string
	// Notices are added to those of every plan.
	Notices []plan.Notice
	// Registry has the backends to choose from; nil is the built-in ones.
	Registry *backend.Registry
	// Snapshot collects the facts about a machine. Environ returns the caller's environment.
	Snapshot func(workspace string) (*host.Snapshot, error)
	Environ  func() []string
	// Granted returns what a person has granted so far.
	Granted func() []policy.Option
	// Asker returns the asker for the denials of a run. It is nil if nobody is asked.
	Asker func(*plan.Plan, *runlog.Run) *asking.Asker
	// Warm: commands share a sandbox, as Sharing says.
	Warm    bool
	Sharing builtin.Sharing
	// Inspect makes what looks inside TLS; nil: nothing can.
	Inspect inspection.Open
}

// An Engine runs commands under one policy. It is safe for concurrent use.
type Engine struct {
	config Config
	prober *prober
	found  foundFiles
	warm   warm
	// inspecting looks inside TLS.
	inspecting inspecting
	// reviews are what commands change while their policy has a review.
	reviews reviews
	// state is cloche's state directory, nil before the first snapshot.
	state atomic.Pointer[string]

	mu     sync.Mutex
	closed bool
	// For wrapped commands: a pipe that ends them with the engine, the proxies of their
	// session buses by bus address, and their denials.
	lifeline *lifeline
	buses    map[string]*bus.Proxy
	wrapped  map[weak.Pointer[exec.Cmd]]*wrapRecord
}

// ErrClosed is returned by an engine that was closed.
var ErrClosed = errors.New("cloche: the session is closed")

// New returns an engine.
func New(c Config) (*Engine, error) {
	e := &Engine{config: c}
	e.warm.engine = e
	e.config.Policy.Paths = slices.Clip(c.Policy.Paths) // so that appending does not change the caller's array
	e.protectGitSinks()
	e.prober = &prober{leaveNoFile: c.Registry != nil, refuseBwrap: e.refuseBwrap} // a caller with its own backends probes them itself
	if c.Registry == nil {
		var err error
		if e.config.Registry, err = e.prober.registry(c.Policy.Backend); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Policy returns the engine's policy: the caller's, with added rules that protect what the
// user's git settings execute.
func (e *Engine) Policy() *policy.Policy { return &e.config.Policy }

// Effective returns the policy with the grants added.
func (e *Engine) Effective() policy.Policy {
	granted := e.config.Granted()
	if len(granted) == 0 {
		return e.config.Policy
	}
	return e.config.Policy.With(granted...)
}

// Close ends the engine: it starts no more commands, and commands that were wrapped
// and still run are ended.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.warm.close()
	e.reviews.releaseEnded()
	e.found.close()
	e.closeBuses()
	if e.lifeline == nil {
		return nil
	}
	return e.lifeline.close()
}

// Closed reports whether the engine was closed.
func (e *Engine) Closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Snapshot collects the facts about the machine again: files, sockets and variables change
// between commands. A non-nil environ replaces the caller's environment.
func (e *Engine) Snapshot(environ []string) (*host.Snapshot, error) {
	snap, err := e.config.Snapshot(e.config.Workspace)
	if err != nil {
		return nil, fmt.Errorf("cloche: cannot collect the facts about this machine: %w", err)
	}
	e.state.Store(&snap.Dirs.State)
	own := *snap
	if e.Effective().Network.Mode == policy.NetworkUser {
		e.prober.networking(&own, e.config.Policy.Network.Link)
	} else if own.Live() {
		own.Networking.Hostname, _ = os.Hostname() // as in networking
	}
	if environ != nil {
		own.Environ = slices.Clone(environ)
	}
	if file := e.config.Policy.Backend.BwrapPath; file != "" {
		err = machine.SetBwrap(&own, file)
	}
	return &own, err
}

// lockFile returns the file that the brokers of all sandboxes lock while they make a change.
// Call it after the first snapshot.
func (e *Engine) lockFile() string {
	if dir := e.state.Load(); dir != nil {
		return filepath.Join(*dir, "changes.lock")
	}
	return "changes.lock" // the broker rejects it, because it is in no directory of cloche's
}

// request adds what all requests of the engine have in common.
func (e *Engine) request(r resolve.Request) resolve.Request {
	r.Workspace, r.RealWorkspace, r.Document, r.Asks = e.config.Workspace, e.config.RealWorkspace, e.config.Document, e.config.Asker != nil
	r.PolicyFiles, r.OwnPrograms, r.Files = e.config.PolicyFiles, e.config.OwnPrograms, e.config.Files
	r.Notices = slices.Concat(e.config.Notices, r.Notices)
	return r
}

// Resolve makes the plan for one command, or for no command.
func (e *Engine) Resolve(pol policy.Policy, snap *host.Snapshot, r resolve.Request) (*plan.Plan, error) {
	p, err := resolve.Resolve(pol, e.request(r), e.beginFind(snap))
	if err != nil {
		return nil, err
	}
	return p.WithNotices(kept(p)...), nil
}
