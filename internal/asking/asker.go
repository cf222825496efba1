// Package asking turns a denial into a question for a person, and the answer into access for
// the command.
package asking

import (
	"context"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Desk is where questions wait, with the functions of the session that an Asker
// needs.
type Desk struct {
	*grant.Desk
	// Given returns the desk's grants that last longer than one run. Renew is called after
	// a new one.
	Given func() []grant.Grant
	Renew func()
}

// An Asker asks a person about the denials of one run. A nil Asker asks nobody.
type Asker struct {
	desk      Desk
	plan      *plan.Plan
	run       string
	command   []string
	workspace string

	mu      sync.Mutex
	refused []grant.Request // not asked about again
	silent  bool            // nothing is asked about any more
	notices []plan.Notice
	hosts   []grant.Grant // grants for the network
}

// New returns an Asker for one run of a plan. run identifies the run, and command is
// its command line.
func New(d Desk, p *plan.Plan, run string, command []string) *Asker {
	return &Asker{desk: d, plan: p, run: run, command: command, workspace: p.Workspace}
}

// Ask waits for a decision about a denied operation. If it is granted, Ask returns the
// line of the plan that allows it, and when the grant expires.
func (a *Asker) Ask(ctx context.Context, d plan.Denial) (line plan.Path, until time.Time, ok bool) {
	behind, ok := judge.FindBehind(a.plan, d.Path)
	if !ok {
		return line, until, false
	}
	d.Decision = a.refusing(&d)
	r := a.request(&d, &behind)
	need := r
	need.Path, need.File = behind.Path, ""
	if a.wasRefused(&need) {
		return line, until, false
	}
	g, err := a.desk.Ask(ctx, r)
	if err != nil {
		a.noteRefusal(ctx, r, err)
		return line, until, false
	}
	a.noteGrant(g)
	a.noteLess(&r, &need, g)
	inside, ok := behind.Name(g.Path)
	if !ok {
		return line, until, false
	}
	line = plan.Path{Path: inside, Source: g.Path, Access: policy.Read, Reason: g.Reason, Origin: g.Origin()}
	if g.Access == grant.Write {
		line.Access = policy.Write
	}
	return line, g.Expires, true
}

// refusing returns the decision with the rule that refuses the operation. If a person has granted
// less than is needed now, that is the rule that the grant overrides: a read grant does not make a
// secret non-secret.
func (a *Asker) refusing(d *plan.Denial) plan.Decision {
	if !d.Origin.Layer.Granted() {
		return d.Decision
	}
	if ungranted := judge.NewFilesUngranted(a.plan).Path(d.Path); ungranted.Access < d.Access {
		ungranted.Op, ungranted.Path = d.Op, d.Path
		return ungranted
	}
	return d.Decision
}

// request returns the request for a denied operation. It is about a folder instead of
// the file if subject chooses one.
func (a *Asker) request(d *plan.Denial, behind *judge.Behind) grant.Request {
	r := a.about(d)
	r.Path, r.Access, r.Secret = behind.Path, grant.Write, isSecret(d)
	if d.Op == plan.OpRead {
		r.Access = grant.Read
	}
	if folder := a.subject(d, behind); folder != behind.Path {
		r.Path, r.File = folder, behind.Path
	}
	return r
}

// about returns a request of this run, with the process and the rule of a denial.
func (a *Asker) about(d *plan.Denial) grant.Request {
	return grant.Request{Program: d.Program, Pid: d.Pid, Rule: d.Because(), Command: a.command, Workspace: a.workspace, Run: a.run}
}

// isSecret reports whether the path is hidden because it contains secrets.
func isSecret(d *plan.Denial) bool {
	return d.Access == policy.Hidden && d.Origin.Layer == policy.LayerPreset
}
