package cloche

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// DeniedText describes the denials in a few lines for an agent to act on: what was denied, by
// which rule, and the option of `cloche run` that allows it. It is empty if there is nothing
// to say. It omits what programs commonly try and do without, unless the command failed.
func (r *Result) DeniedText() string {
	t := r.telling()
	return t.Text()
}

// DeniedLines describes the denials for people: one line for each of the most frequent ones,
// with those of one folder or host combined. There are no lines for a command that succeeded.
// The last line names where as the place that lists all of them.
func (r *Result) DeniedLines(where string) []string {
	t := r.telling()
	t.Where = where
	return t.Lines()
}

// DeniedFirst describes denials for people while the command runs: one line for the first
// denial of each kind (reads, changes, network, sockets) that happened before a time. It is
// empty if no command runs.
func (c *Cmd) DeniedFirst(before time.Time) []string {
	if c.running == nil {
		return nil
	}
	list := c.running.DeniedSoFar()
	f := c.session.fixAll(list, c.running.Plan)
	home, _ := os.UserHomeDir()
	return denials.First(list, home, f, before)
}

func (r *Result) telling() denials.Telling {
	home, _ := os.UserHomeDir()
	return denials.Telling{List: r.Denied, More: r.DeniedMore, Home: home, Fixer: r.fixer, Success: r.Success()}
}

// Denied returns what was denied to a command that [Session.Wrap] rewrote, in the form of
// [Result.Denied], and the number of further denials. It is for a command that has been waited
// for; for one that is still running it returns nothing.
func (s *Session) Denied(c *exec.Cmd) (denied []plan.Denial, more int) {
	return s.engine.WrappedDenied(c)
}

// Allows reports whether an edit of the policy would allow what was denied to the command.
func (r *Result) Allows(d *plan.Denial, e policy.Edit) bool { return r.fixer.Allows(&d.Decision, e) }

// fixAll replaces the suggested options of denials by those that really allow the attempt. It
// returns the fixer, for further questions.
func (s *Session) fixAll(list []plan.Denial, p *plan.Plan) judge.Fixer {
	var likely []policy.Edit
	for i := range list {
		likely = append(likely, list[i].Ask...)
	}
	base := sync.OnceValue(s.current)
	f := judge.Fixer{Plan: p, Works: s.tryEdits(likely, func(d *plan.Decision, p *plan.Plan, j *judge.Files) policy.Access {
		real, onHost := p.HostPath(d.Path)
		line := p.Lookup(d.Path)
		if bound, shown := base().HostPath(d.Path); shown && bound != real && !line.Persisted() {
			return policy.Hidden // another file is mounted there; the edit would show the one beneath
		}
		// A file with a line of its own is a mount point: it cannot be renamed, removed or
		// hard-linked.
		if _, pinned := j.Pinned(d.Path); !onHost || pinned && (d.Op == plan.OpUnlink || d.Op == plan.OpRename || d.Op == plan.OpLink) {
			return policy.Hidden
		}
		access := j.Path(d.Path).Access
		if s.gitRefusal(real, line) != nil {
			access = min(access, policy.Read)
		}
		return access
	})}
	for i := range list {
		f.Fix(&list[i].Decision)
	}
	return f
}

// A triedPlan is a plan made with edits. Its plan is nil if none could be made.
type triedPlan struct {
	plan  *plan.Plan
	files *judge.Files
}

func (s *Session) tryPlan(snap *host.Snapshot, options ...policy.Option) triedPlan {
	p, err := s.engine.Resolve(s.engine.Effective().With(options...), snap, resolve.Request{})
	if err != nil {
		return triedPlan{}
	}
	return triedPlan{p, judge.NewFiles(p)}
}

// tryEdits returns a function that reports whether an edit allows what was denied, by making
// the plan with the edit. access returns what a plan gives for the denied path.
//
// A plan takes some milliseconds, and a command may be denied hundreds of files. So the likely
// edits are first tried together, in one plan. If an edit's own line decides there, it also
// decides in a plan with that edit alone, because the longest path wins. There is one
// exception: another edit below it may have opened the path, and the plan omits that edit's
// line because it repeats the line around it. Then the edit is tried alone.
func (s *Session) tryEdits(likely []policy.Edit, access func(*plan.Decision, *plan.Plan, *judge.Files) policy.Access) func(*plan.Decision, policy.Edit) bool {
	var mu sync.Mutex
	var snap *host.Snapshot
	var together triedPlan
	known := map[policy.Edit]triedPlan{}
	return func(d *plan.Decision, e policy.Edit) bool {
		mu.Lock()
		defer mu.Unlock()
		if snap == nil {
			var err error
			if snap, err = s.engine.Snapshot(nil); err != nil {
				return false
			}
			together = s.tryTogether(snap, likely)
		}
		need := policy.Write
		if e.Field == "paths.read" {
			need = policy.Read
		}
		allows := func(t triedPlan) bool { return t.plan != nil && access(d, t.plan, t.files) >= need }
		below := func(other policy.Edit) bool { return other.Value != e.Value && pathx.Within(e.Value, other.Value) }
		if allows(together) && !slices.ContainsFunc(likely, below) {
			if by := together.files.Path(d.Path); by.At == e.Value && by.Origin.Layer == policy.LayerCommand {
				return true
			}
		}
		t, ok := known[e]
		if !ok {
			t = s.tryPlan(snap, e.Option())
			known[e] = t
		}
		return allows(t)
	}
}

// tryTogether makes a plan with all edits about paths. Each is optional, so that a missing
// path does not prevent the others from being tried.
func (s *Session) tryTogether(snap *host.Snapshot, edits []policy.Edit) triedPlan {
	var options []policy.Option
	for _, e := range edits {
		if strings.HasPrefix(e.Field, "paths.") {
			e.Optional = true
			options = append(options, e.Option())
		}
	}
	if len(options) < 2 {
		return triedPlan{}
	}
	return s.tryPlan(snap, options...)
}
