package cloche

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/engine"
	"github.com/cloche-dev/cloche/internal/hook"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Session runs many commands under one policy. It is safe for concurrent use.
type Session struct {
	opts   options
	engine *engine.Engine
	base   basePlan
	// desk is where denied calls wait for a decision, or nil if they do not wait. See WithAsk.
	desk  *grant.Desk
	given givenGrants
}

// Open checks the policy against this machine, makes its plan and returns a session for it. It
// does not choose a backend: the file methods need none. To find out early whether commands
// can run, call [Session.Backend].
func Open(ctx context.Context, p policy.Policy, opts ...Option) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := &Session{opts: options{snapshot: engine.Collect, environ: os.Environ, sink: discard{}}}
	for _, o := range opts {
		o(&s.opts)
	}
	if err := s.opts.findWorkspace(p.Workspace); err != nil {
		return nil, err
	}
	// The caller may change its policy later. A copy of the default policy takes a tenth of
	// the processor time of a command, so WithDeferredPlan forbids changes instead.
	if !s.opts.deferred {
		p = p.Clone()
	}
	s.openDesk()
	var err error
	if s.engine, err = engine.New(s.engineConfig(p)); err != nil {
		return nil, err
	}
	if s.opts.deferred {
		return s, nil
	}
	if _, err := s.plan(); err != nil {
		return nil, err
	}
	return s, nil
}

// findWorkspace sets the workspace to an absolute path: that of WithWorkspace, else made, the
// one of the policy, else the working folder.
func (o *options) findWorkspace(made string) error {
	o.workspace = cmp.Or(o.workspace, made)
	if o.workspace == "" {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("cloche: the working folder is not known: %w; name one with WithWorkspace", err)
		}
		o.workspace = dir
	}
	dir, err := filepath.Abs(o.workspace)
	if err != nil {
		return fmt.Errorf("cloche: workspace %q: %w", o.workspace, err)
	}
	o.workspace = dir
	return nil
}

func (s *Session) engineConfig(p policy.Policy) engine.Config {
	o := &s.opts
	c := engine.Config{
		Policy: p, Workspace: o.workspace, RealWorkspace: o.realWorkspace, Document: o.document, OwnPrograms: o.ownPrograms, Files: o.files, Hooks: o.hooks(), Notices: o.notices,
		Registry: o.registry, Snapshot: o.snapshot, Environ: o.environ, Granted: s.granted, Warm: o.warm, Sharing: o.sharing, Inspect: o.inspect,
	}
	for _, f := range o.policyFiles {
		c.PolicyFiles = append(c.PolicyFiles, f.Path)
	}
	if s.desk != nil {
		c.Asker = s.askerFor
	}
	return c
}

// hooks returns the programs that decide requests. Commands must not change them.
func (o *options) hooks() []string {
	var list []string
	if o.ask != nil {
		for _, a := range o.ask.Approvers {
			if h, ok := a.(*hook.Hook); ok {
				list = append(list, h.Path)
			}
		}
	}
	return list
}

// Explain returns the plan of the session's commands. The caller must not change it. The error
// is that of a session opened with [WithDeferredPlan] whose policy cannot be used.
func (s *Session) Explain() (*plan.Plan, error) { return s.plan() }

// current returns the plan. It is empty, and shows nothing, if none can be made: the workspace may
// be gone when a command has ended.
func (s *Session) current() *plan.Plan {
	p, err := s.plan()
	if err != nil {
		return &plan.Plan{}
	}
	return p
}

// Backend returns the name of the backend that would enforce a command now and the notices
// about it, or an error if there is no backend.
func (s *Session) Backend() (string, []plan.Notice, error) {
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return "", nil, err
	}
	chosen := s.engine.Choose(snap)
	if chosen.Err != nil {
		return "", nil, chosen.Err
	}
	return chosen.Backend.Name(), chosen.Notices(), nil
}

// ConfinedBy returns the name of the backend that would confine a command now. The error says
// why none does: the policy disables the sandbox, no backend works here, the backend enforces
// nothing, or it cannot enforce the whole policy and the policy is strict. It compiles a
// launch and starts nothing. Package approval asks it before it approves a call because of the
// sandbox.
func (s *Session) ConfinedBy(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.engine.Confined()
}

// Summary describes in a few sentences what commands of the session may do, for the prompt of
// an agent. Where commands are confined it is [plan.Plan.Summary]. Where they run without a
// sandbox, or do not run at all, it says so and why.
func (s *Session) Summary(ctx context.Context, ask string) (string, error) {
	p, err := s.plan()
	if err != nil {
		return "", err
	}
	_, err = s.ConfinedBy(ctx)
	var unconfined *UnconfinedError
	switch {
	case err == nil:
		return p.Summary(ask), nil
	case ctx.Err() != nil:
		return "", err
	case errors.As(err, &unconfined):
		return fmt.Sprintf("You do not work in a sandbox: %s. Commands start in %s, and may do all that the user may do: be careful.\n",
			show.Visible(unconfined.Reason), show.Visible(p.Workspace)), nil
	}
	return fmt.Sprintf("Commands do not run here: %s. Tell the person you work for.\n", show.Visible(err.Error())), nil
}

// Refresh makes the next command of a [WithWarm] session get a new sandbox, for the machine in
// its current state. Running commands stay in the old one, which ends with the last of them.
// Without WithWarm every command gets a new sandbox anyway.
func (s *Session) Refresh() { s.engine.Refresh() }

// Searched returns what the search for files to hide (paths.hide_found) finds now: the files,
// and the number of folders searched. It is empty if the policy has no such rule.
func (s *Session) Searched() ([]*hostfs.Found, error) { return s.engine.Searched() }

// Close ends the session: it starts no more commands, and ends wrapped commands that still
// run. Commands of [Session.Command] run on.
func (s *Session) Close() error {
	if s.desk != nil && s.opts.desk == nil {
		s.desk.Close()
	}
	return s.engine.Close()
}

var errNoCommand = errors.New("cloche: no command")

// newRun returns a new run for the audit log.
func (s *Session) newRun(args []string, dir string) *runlog.Run {
	e := audit.Event{Version: s.opts.version, Argv: args, Dir: dir, Workspace: s.opts.workspace, Network: s.engine.Policy().Network.Mode.String(), Policy: s.opts.policyFiles}
	return runlog.New(s.opts.sink, e)
}

// recordRefusal records why a command did not run.
func recordRefusal(run *runlog.Run, err error) {
	why := RefusalOf(err)
	run.Refused(err, why.Kind, string(why.Cause))
}

// A basePlan is the plan of a session with no command, the one that Explain shows. It is made
// when it is first needed, and again after each change of the grants.
type basePlan struct {
	mu     sync.Mutex
	made   bool
	grants string // the key of the grants it was made with
	plan   *plan.Plan
	judge  *judge.Files // of the plan, or nil
}

// plan returns the plan with no command, and makes it if necessary.
func (s *Session) plan() (*plan.Plan, error) {
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	return s.planLocked()
}

func (s *Session) planLocked() (*plan.Plan, error) {
	b := &s.base
	key := s.grantKey()
	if b.made && b.grants == key {
		return b.plan, nil
	}
	b.made, b.grants, b.plan, b.judge = true, key, nil, nil
	snap, err := s.engine.Snapshot(nil)
	if err == nil {
		b.plan, err = s.engine.Resolve(s.engine.Effective(), snap, resolve.Request{})
	}
	b.made = err == nil // what is missing may come back
	return b.plan, err
}

// currentJudge returns the judge of that plan.
func (s *Session) currentJudge() *judge.Files {
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	p, err := s.planLocked()
	if err != nil {
		return judge.NewFiles(&plan.Plan{})
	}
	if s.base.judge == nil {
		s.base.judge = judge.NewFiles(p)
	}
	return s.base.judge
}
