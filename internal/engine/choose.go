package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Choice is the backend that the policy asks for, or the reason why there is none.
type Choice struct {
	Backend backend.Backend
	// Unconfined says why commands run without a sandbox. It is nil if they run in one.
	Unconfined *UnconfinedError
	Err        error
}

// Notices returns the notices about the choice, for the plan.
func (c *Choice) Notices() []plan.Notice {
	if c.Unconfined == nil {
		return nil
	}
	return []plan.Notice{{Kind: plan.NoticeUnconfined, Text: unconfinedText + c.Unconfined.Reason, Origin: c.Unconfined.Origin}}
}

// mounts reports whether the backend can show files that the host does not have.
func (c *Choice) mounts() bool { return c.Err == nil && c.Backend.Mounts() }

// request adds to r what depends on the backend.
func (c *Choice) request(r resolve.Request) resolve.Request {
	if c.Err != nil {
		return r
	}
	r.NoMounts, r.Notices = !c.mounts(), c.Notices()
	if c.Unconfined == nil {
		r.Backend = c.Backend.Name()
	}
	return r
}

// Choose finds the backend that the policy asks for.
func (e *Engine) Choose(snap *host.Snapshot) Choice {
	pol := &e.config.Policy
	want := pol.Backend
	unconfined := func(because policy.Origin, why string) Choice {
		return Choice{Backend: none.New(), Unconfined: &UnconfinedError{Reason: why, Origin: because}}
	}
	refused := func(err error) Choice {
		return Choice{Err: &UnavailableError{Wanted: cmp.Or(want.Name, "auto"), Err: err}}
	}
	switch {
	case pol.Disabled && pol.DisabledOrigin.Layer == policy.LayerSession:
		return unconfined(pol.DisabledOrigin, "it was switched off; cloche enable switches it on")
	case pol.Disabled:
		return unconfined(pol.DisabledOrigin, "the policy says enabled: false")
	case want.Name == none.Name:
		return unconfined(want.Origin, "the backend none was asked for")
	case want.Name == "", want.Name == "auto", want.Name == "required":
		entry, err := e.config.Registry.Detect(snap)
		switch {
		case err == nil:
			return Choice{Backend: entry.Backend}
		case want.Fallback == policy.FallbackWarn && want.Name != "required":
			return unconfined(want.Origin, "the policy says fallback: warn, and "+err.Error())
		}
		return refused(err)
	}
	entry, ok := e.config.Registry.Get(want.Name)
	if !ok {
		return refused(e.unknownBackend(want.Name))
	}
	if err := entry.Backend.Available(snap); err != nil {
		return refused(err)
	}
	return Choice{Backend: entry.Backend}
}

func (e *Engine) unknownBackend(name string) error {
	known := []string{"auto", "required", none.Name}
	for _, entry := range e.config.Registry.All() {
		if !slices.Contains(known, entry.Backend.Name()) {
			known = append(known, entry.Backend.Name())
		}
	}
	return fmt.Errorf("there is no backend %q; known are %s", name, strings.Join(known, ", "))
}

// distrusts reports whether a backend that failed to make a sandbox no longer works here,
// although the cache says that it does. It drops the cached answers and probes again: a
// seccomp filter or a security profile may have been applied to this process since.
func (e *Engine) distrusts(name string) bool {
	entry, ok := e.config.Registry.Get(name)
	if !ok {
		return false
	}
	snap, err := e.Snapshot(nil)
	if err != nil || !snap.Live() {
		return false
	}
	e.prober.forget(snap)
	e.config.Registry.Forget()
	return entry.Backend.Available(snap) != nil
}

// Confined returns the name of the backend that would confine a command now, or an error that
// says why none does. It compiles a launch and starts nothing.
func (e *Engine) Confined() (string, error) {
	snap, err := e.Snapshot(nil)
	if err != nil {
		return "", err
	}
	chosen := e.Choose(snap)
	switch {
	case chosen.Err != nil:
		return "", chosen.Err
	case chosen.Unconfined != nil:
		return "", chosen.Unconfined
	}
	p, err := e.Resolve(e.Effective(), snap, chosen.request(resolve.Request{}))
	if err != nil {
		return "", err
	}
	// The gaps of a backend do not depend on the command.
	if p, err = e.wouldReview(p, chosen, snap); err != nil {
		return "", err
	}
	complete := *p
	complete.Command = &plan.Command{Path: "/", Args: []string{"confined"}, Dir: p.Inside}
	l, err := e.compile(chosen, &complete, snap)
	switch {
	case err != nil:
		return "", err
	case !l.Confined:
		return "", &UnconfinedError{Reason: "the backend " + l.Backend + " enforces nothing"}
	}
	return l.Backend, nil
}

// compile turns a plan into a launch. It fails if there are gaps and the policy is strict.
func (e *Engine) compile(chosen Choice, p *plan.Plan, snap *host.Snapshot) (*backend.Launch, error) {
	if chosen.Err != nil {
		return nil, chosen.Err
	}
	b := chosen.Backend
	if err := e.checkPrograms(b, p, snap); err != nil {
		return nil, err
	}
	l, err := b.Compile(p, snap)
	if err != nil {
		return nil, err
	}
	coverGaps(l, snap)
	l.Gaps = append(l.Gaps, e.uninspected(p, l)...)
	return l, refuseGaps(p, l)
}

// checkPrograms fails if the command could change a program that cloche starts outside of the
// sandbox: the next start would run the changed program.
func (e *Engine) checkPrograms(b backend.Backend, p *plan.Plan, snap *host.Snapshot) error {
	if !snap.Live() {
		return nil
	}
	if b.Name() == bwrap.Name && (e.config.Policy.Backend.BwrapPath != "" || snap.UID == 0) {
		if err := machine.CheckProgram(snap.Bwrap.Path, p.Writable()); err != nil {
			return &UnavailableError{Wanted: bwrap.Name, Err: err}
		}
	}
	for _, hook := range e.config.Hooks {
		if err := machine.CheckProgram(hook, p.Writable()); err != nil {
			return fmt.Errorf("cloche: the hook that decides requests: %w", err)
		}
	}
	return nil
}

// refuseBwrap returns why bwrap must not even be probed: see checkPrograms. If the policy
// names no bwrap, it is one found in PATH, which only root's commands could change.
func (e *Engine) refuseBwrap(snap *host.Snapshot) *host.Probe {
	if e.config.Policy.Backend.BwrapPath == "" && snap.UID != 0 {
		return nil
	}
	p, err := e.Resolve(e.Effective(), snap, resolve.Request{})
	if err == nil {
		err = machine.CheckProgram(snap.Bwrap.Path, p.Writable())
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // the probe reports that it is missing
	}
	return &host.Probe{Outcome: host.No, Cause: cause.Untrusted, Reason: err.Error(),
		Fix: "name a bwrap that belongs to root, or leave backends.bwrap.path out"}
}

// refuseGaps fails if the launch leaves parts of a strict plan unenforced. A launch without a
// sandbox passes: the policy asked for that. Optional gaps alone are no reason to fail, but the
// error has them: with --best-effort the command would run with all of them.
func refuseGaps(p *plan.Plan, l *backend.Launch) error {
	if !p.Strict || !l.Confined || !slices.ContainsFunc(l.Gaps, func(g backend.Gap) bool { return !g.Optional }) {
		return nil
	}
	return &GapError{Backend: l.Backend, Gaps: slices.Clone(l.Gaps)}
}

// unasked returns a notice if the policy asks a person about denials, but the backend cannot
// make calls wait.
func unasked(p *plan.Plan, l *backend.Launch) (notices []plan.Notice) {
	if p.Asks && l.Confined && l.Guard == nil {
		notices = append(notices, plan.Notice{Kind: plan.NoticeWarning,
			Text: "nobody is asked about files that are refused: backend " + l.Backend + " cannot hold a call here (that takes native or bwrap, and Landlock ABI 2)"})
	}
	return notices
}
