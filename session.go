package cloche

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Session runs many commands under one policy. It is safe for concurrent use.
type Session struct {
	policy policy.Policy
	opts   options
	prober *prober
	base   basePlan
	// desk is where refused calls wait for a decision; nil if they do not. See Ask.
	desk  *grant.Desk
	given givenGrants
	// state is cloche's state directory, nil before the first snapshot.
	state atomic.Pointer[string]

	mu       sync.Mutex
	closed   bool
	lifeline *lifeline // of wrapped commands, made when first needed
	// buses are the proxies of wrapped commands, by the address of the bus.
	buses   map[string]*bus.Proxy
	wrapped map[weak.Pointer[exec.Cmd]]*wrapRecord

	warm  warmth
	found foundFiles
}

// Open checks the policy against this machine, makes its plan and returns a
// session for it. It does not ask for a backend: the file methods need none.
// A program that wants to know early whether commands can run calls
// [Session.Backend].
func Open(ctx context.Context, p policy.Policy, opts ...Option) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := &Session{policy: withoutPaths(p).Clone(), opts: options{snapshot: collect, environ: os.Environ, sink: audit.Nop{}}}
	s.policy.Paths = slices.Clip(p.Paths)
	for _, o := range opts {
		o(&s.opts)
	}
	if err := s.fillDefaults(); err != nil {
		return nil, err
	}
	s.policy.Paths = resolve.Own(s.policy.Paths)
	if s.opts.deferred {
		return s, nil
	}
	_, err := s.plan()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// withoutPaths returns a policy without its path rules, of which there are hundreds:
// sessions of one policy share a copy of them.
func withoutPaths(p policy.Policy) policy.Policy {
	p.Paths = nil
	return p
}

func (s *Session) fillDefaults() error {
	if s.opts.workspace == "" {
		s.opts.workspace = s.policy.Workspace
	}
	if s.opts.workspace == "" {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("cloche: the working folder is not known: %w; name one with WithWorkspace", err)
		}
		s.opts.workspace = dir
	}
	dir, err := filepath.Abs(s.opts.workspace)
	if err != nil {
		return fmt.Errorf("cloche: workspace %q: %w", s.opts.workspace, err)
	}
	s.opts.workspace = dir
	s.protectGitSinks()
	s.openDesk()
	s.prober = &prober{leaveNoFile: s.opts.registry != nil, refuseBwrap: s.refuseBwrap} // who brings backends asks about them
	if s.opts.registry == nil {
		s.opts.registry, err = s.prober.registry(s.policy.Backend)
	}
	return err
}

// lockFile is what the brokers of all sandboxes lock while they make a change. It is
// called when there has been a snapshot.
func (s *Session) lockFile() string {
	if dir := s.state.Load(); dir != nil {
		return filepath.Join(*dir, "changes.lock")
	}
	return "changes.lock" // which the broker refuses, as it is in no directory of cloche's
}

// snapshot looks at the machine anew: files, sockets and variables change
// between commands. A non-nil environ stands in for the caller's environment.
func (s *Session) snapshot(environ []string) (*host.Snapshot, error) {
	snap, err := s.opts.snapshot(s.opts.workspace)
	if err != nil {
		return nil, fmt.Errorf("cloche: the machine could not be looked at: %w", err)
	}
	s.state.Store(&snap.Dirs.State)
	own := *snap
	if s.effective().Network.Mode == policy.NetworkUser {
		s.prober.networking(&own, s.policy.Network.Link)
	} else if own.Live() {
		own.Networking.Hostname, _ = os.Hostname() // as in networking
	}
	if environ != nil {
		own.Environ = slices.Clone(environ)
	}
	if s.policy.Backend.BwrapPath != "" {
		err = own.SetBwrap(s.policy.Backend.BwrapPath)
	}
	return &own, err
}

// resolve makes the plan for one command, or for none.
func (s *Session) resolve(pol policy.Policy, snap *host.Snapshot, r resolve.Request) (*plan.Plan, error) {
	r.Workspace, r.Document, r.Asks, r.OwnPrograms = s.opts.workspace, s.opts.document, s.desk != nil, s.opts.ownPrograms
	for _, f := range s.opts.policyFiles {
		r.PolicyFiles = append(r.PolicyFiles, f.Path)
	}
	p, err := resolve.Resolve(pol, r, s.beginFind(snap))
	if err != nil {
		return nil, err
	}
	if len(s.opts.notices) > 0 {
		p.Notices = slices.Concat(s.opts.notices, p.Notices)
	}
	noticeKept(p)
	return p, nil
}

// choose finds the backend that the policy asks for. The notices say where the
// command will run unconfined.
func (s *Session) choose(snap *host.Snapshot) (backend.Backend, []plan.Notice, error) {
	want := s.policy.Backend
	because := want.Origin
	unconfined := func(why string) (backend.Backend, []plan.Notice, error) {
		return none.New(), []plan.Notice{{Kind: plan.NoticeUnconfined, Text: unconfinedText + why, Origin: because}}, nil
	}
	if s.policy.Disabled {
		because = s.policy.DisabledOrigin
		if because.Layer == policy.LayerSession {
			return unconfined("it was switched off; cloche enable switches it on")
		}
		return unconfined("the policy says enabled: false")
	}
	switch want.Name {
	case "", "auto", "required":
		e, err := s.opts.registry.Detect(snap)
		if err == nil {
			return e.Backend, nil, nil
		}
		if want.Fallback == policy.FallbackWarn && want.Name != "required" {
			return unconfined("the policy says fallback: warn, and " + err.Error())
		}
		return nil, nil, &UnavailableError{Wanted: cmpName(want.Name), Err: err}
	case none.Name:
		return unconfined("the backend none was asked for")
	}
	e, ok := s.opts.registry.Get(want.Name)
	if !ok {
		return nil, nil, &UnavailableError{Wanted: want.Name, Err: s.unknownBackend(want.Name)}
	}
	if err := e.Backend.Available(snap); err != nil {
		return nil, nil, &UnavailableError{Wanted: want.Name, Err: err}
	}
	return e.Backend, nil, nil
}

// distrusts reports whether a backend that could not make a sandbox does not work
// here any more, although it was remembered to. What was remembered is dropped
// and asked anew: a filter or a profile may have come over this process since.
func (s *Session) distrusts(name string) bool {
	e, ok := s.opts.registry.Get(name)
	if !ok {
		return false
	}
	snap, err := s.snapshot(nil)
	if err != nil || !snap.Live() {
		return false
	}
	s.prober.forget(snap, name)
	s.opts.registry.Forget()
	return e.Backend.Available(snap) != nil
}

func cmpName(name string) string {
	if name == "" {
		return "auto"
	}
	return name
}

func (s *Session) unknownBackend(name string) error {
	known := []string{"auto", "required", none.Name}
	for _, e := range s.opts.registry.All() {
		if !slices.Contains(known, e.Backend.Name()) {
			known = append(known, e.Backend.Name())
		}
	}
	return fmt.Errorf("there is no backend %q; known are %s", name, strings.Join(known, ", "))
}

// Explain returns the plan that every command of the session is held to. It is
// nil only for a session opened with [Deferred] whose policy cannot be used.
// Nobody may change it.
func (s *Session) Explain() *plan.Plan {
	p, _ := s.plan()
	return p
}

// Backend returns the name of the backend that enforces the session now, the
// notices about it, and the error if there is none.
func (s *Session) Backend() (string, []plan.Notice, error) {
	snap, err := s.snapshot(nil)
	if err != nil {
		return "", nil, err
	}
	b, notices, err := s.choose(snap)
	if err != nil {
		return "", nil, err
	}
	return b.Name(), notices, nil
}

// Confined returns the name of the backend that confines commands of the session
// now, or why none does: the policy switches the sandbox off, no backend works here,
// the backend enforces nothing, or it cannot enforce the whole policy and the policy is
// strict. It makes the launch of a command and starts nothing. A chain of package
// approval asks it before it approves a call because of the sandbox.
func (s *Session) Confined(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	snap, err := s.snapshot(nil)
	if err != nil {
		return "", err
	}
	chosen := s.choice(snap)
	if chosen.err != nil {
		return "", chosen.err
	}
	for _, n := range chosen.notices {
		if n.Kind == plan.NoticeUnconfined {
			return "", &UnconfinedError{Reason: strings.TrimPrefix(n.Text, unconfinedText), Origin: n.Origin}
		}
	}
	p, err := s.resolve(s.effective(), snap, resolve.Request{})
	if err != nil {
		return "", err
	}
	// The gaps of a backend depend on no command.
	p.Command = &plan.Command{Path: "/", Args: []string{"confined"}, Dir: p.Inside}
	l, err := s.compile(chosen, p, snap)
	switch {
	case err != nil:
		return "", err
	case !l.Confined:
		return "", &UnconfinedError{Reason: "the backend " + l.Backend + " enforces nothing"}
	}
	return l.Backend, nil
}

// Summary says in a few sentences what commands of the session may do, for the prompt
// of an agent. It is [plan.Plan.Summary] where commands are confined. Where they run
// without a sandbox, or do not run at all, it says that and why.
func (s *Session) Summary(ctx context.Context, ask string) (string, error) {
	p, err := s.plan()
	if err != nil {
		return "", err
	}
	_, err = s.Confined(ctx)
	var unconfined *UnconfinedError
	switch {
	case err == nil:
		return p.Summary(ask), nil
	case ctx.Err() != nil:
		return "", err
	case errors.As(err, &unconfined):
		return fmt.Sprintf("You do not work in a sandbox: %s. Commands start in %s, and may do all that the user may do: be careful.\n",
			plan.Visible(unconfined.Reason), plan.Visible(p.Workspace)), nil
	}
	return fmt.Sprintf("Commands do not run here: %s. Tell the person you work for.\n", plan.Visible(err.Error())), nil
}

// Close ends the session: it starts no more commands, and commands that were
// wrapped and still run are ended. Commands of [Session.Command] run on.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.desk != nil && s.opts.desk == nil {
		s.desk.Close()
	}
	s.warm.close()
	s.found.close()
	s.closeBuses()
	if s.lifeline == nil {
		return nil
	}
	return s.lifeline.close()
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// A choice is what choose returned.
type choice struct {
	backend backend.Backend
	notices []plan.Notice
	err     error
}

func (s *Session) choice(snap *host.Snapshot) (c choice) {
	c.backend, c.notices, c.err = s.choose(snap)
	return c
}

// compile turns a plan into a launch and refuses gaps that the policy does.
func (s *Session) compile(chosen choice, p *plan.Plan, snap *host.Snapshot) (*backend.Launch, error) {
	if chosen.err != nil {
		return nil, chosen.err
	}
	p.Notices = append(p.Notices, chosen.notices...)
	return s.compileWith(chosen.backend, p, snap)
}

func (s *Session) compileWith(b backend.Backend, p *plan.Plan, snap *host.Snapshot) (*backend.Launch, error) {
	if !mounts(b.Name()) {
		p.AtHome()
	}
	s.showPolicy(p, b.Name())
	if err := s.checkPrograms(b, p, snap); err != nil {
		return nil, err
	}
	l, err := b.Compile(p, snap)
	if err != nil {
		return nil, err
	}
	coverGaps(l, snap)
	noticeUnasked(p, l)
	return l, refuseGaps(p, l)
}

// checkPrograms refuses a command if it could change a program that cloche starts
// outside of the sandbox: the next start would run the command's own.
func (s *Session) checkPrograms(b backend.Backend, p *plan.Plan, snap *host.Snapshot) error {
	if !snap.Live() {
		return nil
	}
	if b.Name() == bwrap.Name && (s.policy.Backend.BwrapPath != "" || snap.UID == 0) {
		if err := host.CheckProgram(snap.Bwrap.Path, p.Writable()); err != nil {
			return &UnavailableError{Wanted: bwrap.Name, Err: err}
		}
	}
	for _, hook := range s.hooks() {
		if err := host.CheckProgram(hook, p.Writable()); err != nil {
			return fmt.Errorf("cloche: the hook that decides requests: %w", err)
		}
	}
	return nil
}

// refuseBwrap says why bwrap must not be tried: see checkPrograms. One that was
// looked up can be changed by root's commands only.
func (s *Session) refuseBwrap(snap *host.Snapshot) *host.Probe {
	if s.policy.Backend.BwrapPath == "" && snap.UID != 0 {
		return nil
	}
	p, err := s.resolve(s.effective(), snap, resolve.Request{})
	if err == nil {
		err = host.CheckProgram(snap.Bwrap.Path, p.Writable())
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // that it is missing is for the probe to say
	}
	return &host.Probe{Outcome: host.No, Cause: host.CauseUntrusted, Reason: err.Error(),
		Fix: "name a bwrap that belongs to root, or leave backends.bwrap.path out"}
}

// hooks returns the programs that decide requests.
func (s *Session) hooks() []string {
	var list []string
	if s.opts.ask != nil {
		for _, a := range s.opts.ask.Approvers {
			if h, ok := a.(*grant.Hook); ok {
				list = append(list, h.Path)
			}
		}
	}
	return list
}

// refuseGaps refuses a launch that leaves parts of a strict plan open. Unconfined
// was asked for by name: there is nothing left to refuse.
func refuseGaps(p *plan.Plan, l *backend.Launch) error {
	if !p.Strict || !l.Confined {
		return nil
	}
	gaps := slices.DeleteFunc(slices.Clone(l.Gaps), func(g backend.Gap) bool { return g.Optional })
	if len(gaps) > 0 {
		return &GapError{Backend: l.Backend, Gaps: gaps}
	}
	return nil
}

var errNoCommand = errors.New("cloche: no command")

// newRun begins the audit log's lines about a command.
func (s *Session) newRun(c *Cmd) *runlog.Run {
	e := audit.Event{Version: s.opts.version, Argv: c.Args, Dir: c.Dir, Workspace: s.opts.workspace, Network: s.policy.Network.Mode.String()}
	for _, f := range s.opts.policyFiles {
		e.Policy = append(e.Policy, audit.PolicyFile{Path: f.Path, SHA256: f.SHA256, Trusted: f.Trusted})
	}
	return runlog.New(s.opts.sink, e)
}

// recordRefusal records why a command did not run.
func recordRefusal(run *runlog.Run, err error) {
	why := RefusalOf(err)
	run.Refused(err, string(why.Kind), string(why.Cause))
}
