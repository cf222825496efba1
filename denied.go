package cloche

import (
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// DeniedText says in a few lines what was refused to the command, for an agent
// to act on: what it was, by which rule, and the option of `cloche run` that allows
// it. It is empty if there is nothing to say. What programs commonly try and do
// without is left out, unless the command failed.
func (r *Result) DeniedText() string {
	t := r.telling()
	return t.Text()
}

// DeniedLines is for people what DeniedText is for an agent: a line for each of the
// most frequent refusals, with those of one folder or host put together. There are
// none of a command that went well. where names, in the last
// line, what has all of them.
func (r *Result) DeniedLines(where string) []string {
	t := r.telling()
	t.Where = where
	return t.Lines()
}

// DeniedFirst is for people who wait for a command that goes on: a line for the first
// refusal of each kind (reads, changes, network, sockets) that happened before a
// time. Where nothing runs it is empty.
func (c *Cmd) DeniedFirst(before time.Time) []string {
	if c.running == nil {
		return nil
	}
	list := c.running.DeniedSoFar()
	f := c.session.fixer(c.running.Plan)
	fixAll(list, f)
	home, _ := os.UserHomeDir()
	return denials.First(list, home, f, before)
}

func (r *Result) telling() denials.Telling {
	home, _ := os.UserHomeDir()
	return denials.Telling{List: r.Denied, More: r.DeniedMore, Home: home, Fixer: r.fixer, Success: r.Success()}
}

// Denied returns what was refused to a command that [Session.Wrap] rewrote, as
// [Result.Denied] has it of others, and how many refusals more there were. It is for a
// command that has been waited for; of one that still runs, it returns nothing.
func (s *Session) Denied(c *exec.Cmd) (denied []plan.Denial, more int) {
	return s.engine.WrappedDenied(c)
}

// Allows reports whether an edit of the policy would allow what was denied to the command.
func (r *Result) Allows(d *plan.Denial, e policy.Edit) bool { return r.fixer.Allows(&d.Decision, e) }

// fixer finds the edits that allow what a plan denied to a command. It tries each.
func (s *Session) fixer(p *plan.Plan) judge.Fixer {
	return judge.Fixer{Plan: p, Works: s.tryEdits(func(d *plan.Decision, p *plan.Plan, j *judge.Files) policy.Access {
		real, onHost := p.HostPath(d.Path)
		line := p.Lookup(d.Path)
		if bound, shown := s.current().HostPath(d.Path); shown && bound != real && !line.Persisted() {
			return policy.Hidden // the file is bound there, and the edit shows the one beneath
		}
		// A file that is opened by itself is a mount: it has no other name.
		if _, pinned := j.Pinned(d.Path); !onHost || pinned && (d.Op == plan.OpUnlink || d.Op == plan.OpRename || d.Op == plan.OpLink) {
			return policy.Hidden
		}
		access := j.Path(d.Path).Access
		if s.gitRefusal(real, line) != nil {
			access = min(access, policy.Read)
		}
		return access
	})}
}

// fixAll has denials suggest only options that open what was attempted.
func fixAll(list []plan.Denial, f judge.Fixer) {
	for i := range list {
		f.Fix(&list[i].Decision)
	}
}

// tryEdits returns a function that reports whether an edit allows what was denied. It
// makes the plan with the edit, and access says what that plan gives. It makes one plan
// for each edit.
func (s *Session) tryEdits(access func(*plan.Decision, *plan.Plan, *judge.Files) policy.Access) func(*plan.Decision, policy.Edit) bool {
	type tried struct {
		plan  *plan.Plan // nil if there is none
		judge *judge.Files
	}
	var mu sync.Mutex
	var snap *host.Snapshot
	known := map[policy.Edit]tried{}
	return func(d *plan.Decision, e policy.Edit) bool {
		mu.Lock()
		defer mu.Unlock()
		if snap == nil {
			var err error
			if snap, err = s.engine.Snapshot(nil); err != nil {
				return false
			}
		}
		need := policy.Write
		if e.Field == "paths.read" {
			need = policy.Read
		}
		t, ok := known[e]
		if !ok {
			if p, err := s.engine.Resolve(s.engine.Effective().With(e.Option()), snap, resolve.Request{}); err == nil {
				t = tried{p, judge.NewFiles(p)}
			}
			known[e] = t
		}
		return t.plan != nil && access(d, t.plan, t.judge) >= need
	}
}
