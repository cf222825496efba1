package resolve

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Layout is a plan that many commands can share, with everything that it depends on. It is
// safe for concurrent use.
type Layout struct {
	// Plan is the plan with no command.
	Plan *plan.Plan

	policy policy.Policy
	req    Request
	// paths are the lines before remap.
	paths []plan.Path
	// variables are those that rules use, with their values. cwd: rules depend on the working
	// folder.
	variables map[string]string
	cwd       bool
	looked    map[string]host.Kind
	// notices are the plan's notices without those about the environment.
	notices []plan.Notice

	mu sync.Mutex
	// The most recent environment, and its result.
	environ []string
	env     []plan.Var
	all     []plan.Notice
	// last is where the previous command was found: most commands come from one shell.
	last *placement
}

// A LayoutError says that a command cannot share the layout.
type LayoutError struct {
	// Reason says why.
	Reason string
	// Program is the program that another layout has to show, if that is the reason.
	Program string
}

// Error returns the reason.
func (e *LayoutError) Error() string { return "the layout does not fit the command: " + e.Reason }

// ResolveLayout makes the plan for commands like the request's. The plan itself has no
// command. Request.Programs can be started in it wherever they are.
func ResolveLayout(p policy.Policy, r Request, s *host.Snapshot) (*Layout, error) {
	r.Name, r.Args = "", nil
	b := newBuilder(p.Clone(), r, s) // the layout keeps the policy
	b.fs.remember, b.forLayout = true, true
	out, err := b.resolve()
	if err != nil {
		return nil, err
	}
	others := slices.Concat(out.Notices[:b.envFrom], out.Notices[b.envTo:])
	l := &Layout{
		Plan: out, policy: b.policy, req: r, paths: b.settled, variables: b.variables, cwd: b.fromFolder || usesFolder(p),
		looked: map[string]host.Kind{}, environ: slices.Clone(s.Environ), env: out.Env, all: out.Notices,
		notices: others,
	}
	for p, found := range b.fs.seen {
		l.looked[p] = found.info.Kind
	}
	for _, p := range b.fs.lacking {
		l.looked[p] = hostfs.Missing
	}
	return l, nil
}

// Looked returns each path that the plan was made from and what kind of file was there.
func (l *Layout) Looked() map[string]host.Kind { return l.looked }

// usesFolder reports whether a rule may depend on the working folder.
func usesFolder(p policy.Policy) bool {
	uses := func(path string) bool {
		a, errA := pathx.Expand(path, pathx.Vars{Cwd: "/a", Home: "/h", Workspace: "/w", Document: "/d", Self: "/s", Env: unset})
		b, errB := pathx.Expand(path, pathx.Vars{Cwd: "/b", Home: "/h", Workspace: "/w", Document: "/d", Self: "/s", Env: unset})
		return a != b || (errA == nil) != (errB == nil)
	}
	return slices.ContainsFunc(p.Paths, func(r policy.PathRule) bool { return uses(r.Path) }) ||
		slices.ContainsFunc(p.Binds, func(r policy.Bind) bool { return uses(r.Source) || uses(r.Target) }) ||
		slices.ContainsFunc(p.Persist, func(r policy.Persist) bool { return uses(r.Path) }) ||
		slices.ContainsFunc(p.Sockets, func(r policy.Socket) bool { return uses(r.Path) }) || uses(p.Home.Value)
}

// unset returns no variables, so that every default value is used.
func unset(string) (string, bool) { return "", false }

// Command makes the plan of one command in the layout: its program, working folder and
// environment. It returns a *LayoutError if the command needs another layout. The variables in
// set are for this command only.
func (l *Layout) Command(r Request, s *host.Snapshot, set []policy.EnvSet) (*plan.Plan, error) {
	if l.cwd && r.Dir != l.req.Dir {
		return nil, &LayoutError{Reason: "rules of the policy are about the working folder, and it has another one"}
	}
	if !l.sameVariables(s) {
		return nil, &LayoutError{Reason: "a variable that rules of the policy use has changed"}
	}
	r.Workspace, r.Document, r.PolicyFiles, r.OwnPrograms, r.Backend = l.req.Workspace, l.req.Document, l.req.PolicyFiles, l.req.OwnPrograms, l.req.Backend
	r.Placeholders, r.Trust, r.NoMounts = l.req.Placeholders, l.req.Trust, l.req.NoMounts
	own := *l.Plan
	own.Paths = slices.Clip(l.paths)
	b := &builder{policy: l.policy, req: r, snap: s, fs: newSmallTree(s.FS), plan: &own, fixed: true}
	b.vars = pathx.Vars{Home: s.Home, Cwd: cmp.Or(r.Dir, own.Workspace), Workspace: own.Workspace, Document: r.Document, Self: s.Self, Env: s.Getenv}
	l.environment(b, set)
	if !l.placeAgain(b) {
		if err := l.place(b); err != nil {
			return nil, err
		}
		l.keepPlace(b)
	}
	own.Paths = slices.Clip(l.Plan.Paths)
	return &own, nil
}

// place finds the program and the working folder in the layout.
func (l *Layout) place(b *builder) error {
	b.command()
	b.placeLinks()
	if len(b.errs) > 0 {
		return errors.Join(b.errs...)
	}
	if len(b.plan.Paths) != len(l.paths) || b.reached {
		return &LayoutError{Reason: "its program lies where the layout shows nothing", Program: b.plan.Command.Path}
	}
	if b.plan.Inside != b.plan.Workspace {
		b.remapCommand(b.plan.Workspace, b.plan.Inside)
	}
	return nil
}

// sameVariables reports whether the variables that rules use still have the same values.
func (l *Layout) sameVariables(s *host.Snapshot) bool {
	l.mu.Lock()
	same := slices.Equal(l.environ, s.Environ)
	l.mu.Unlock()
	if same {
		return true
	}
	for name, was := range l.variables {
		if value, _ := s.Getenv(name); value != was {
			return false
		}
	}
	return true
}

// environment decides which variables the command gets. Most commands have the environment of
// the one before, so its result is reused.
func (l *Layout) environment(b *builder, set []policy.EnvSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(set) == 0 && slices.Equal(l.environ, b.snap.Environ) {
		b.plan.Env, b.plan.Notices = slices.Clip(l.env), slices.Clip(l.all)
		return
	}
	b.policy.Env.Set = slices.Concat(b.policy.Env.Set, set)
	b.plan.Env, b.plan.Notices = nil, nil
	b.environment()
	b.plan.Notices = slices.Concat(l.notices, b.plan.Notices)
	if len(set) == 0 {
		l.environ, l.env, l.all = slices.Clone(b.snap.Environ), b.plan.Env, b.plan.Notices
	}
}

// reachPrograms shows the programs that later commands will start. A program that a rule
// hides, or that is gone, is reported when it is started.
func (b *builder) reachPrograms() {
	for _, p := range b.req.Programs {
		real, err := b.follow(p)
		if err != nil || real.info.Kind != hostfs.File {
			continue
		}
		if line := b.plan.Lookup(real.path); line.Access == policy.Hidden && line.Origin.Layer != policy.LayerBuiltin {
			continue
		}
		b.reachProgram(real)
	}
}
