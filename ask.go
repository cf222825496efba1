package cloche

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/asking"
	"github.com/cloche-dev/cloche/internal/engine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// WithAsk makes what rules refuse to commands wait at a desk until somebody decides:
// see [Session.Desk]. On yes the very call that waits succeeds. cloche opens the
// file or makes the connection itself and hands it to the process; the sandbox stays
// as it is.
//
// With a network of the mode user, connections of TCP wait; the client is accepted
// meanwhile. Datagrams, pings, and single requests on an open connection are refused
// as always.
//
// The calls that can wait are those that open, create, move, remove and truncate
// files, on backends that have a broker (native and bwrap). Looking at a file
// without opening it, listing a hidden folder and running a hidden program are
// refused as always; what is granted for longer than the run is in the sandbox of
// the next command.
//
// Every file that is opened for reading is judged then, which makes programs that
// open many files slower.
//
// The session records each decision in its audit log. With no approver and nobody
// else at the desk everything is refused after its time.
func WithAsk(o grant.Options) Option { return func(opts *options) { opts.ask = &o } }

// WithDesk is [WithAsk] for a desk that outlives the session, as that of a program with
// many sessions does. Its owner closes it and records what is decided.
func WithDesk(d *grant.Desk) Option { return func(opts *options) { opts.desk = d } }

// Desk is where refused calls of the session's commands wait, or nil without
// [WithAsk].
func (s *Session) Desk() *grant.Desk { return s.desk }

// openDesk makes the desk.
func (s *Session) openDesk() {
	s.desk = s.opts.desk
	if s.opts.ask == nil || s.desk != nil {
		return
	}
	o := *s.opts.ask
	if o.Check == nil {
		o.Check = s.tryGrant
	}
	if o.Keeps == nil {
		o.Keeps = func(g grant.Grant) []grant.Kept {
			kept, _ := s.StaysClosed(context.Background(), g) // Check says why a grant cannot be had
			return kept
		}
	}
	told := o.Decided
	o.Decided = func(r grant.Request, g *grant.Grant, err error) {
		s.recordDecision(r, g, err)
		if told != nil {
			told(r, g, err)
		}
	}
	s.desk = grant.NewDesk(o)
}

// tryGrant reports why a policy with the grant makes no plan: the next command would
// not start for it.
func (s *Session) tryGrant(g grant.Grant) error {
	_, err := s.planWith(g)
	return err
}

// planWith is the plan with one more grant.
func (s *Session) planWith(g grant.Grant) (*plan.Plan, error) {
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return nil, err
	}
	return s.engine.Resolve(s.engine.Effective().With(g.Option()), snap, resolve.Request{})
}

// StaysClosed returns what in the folder of a grant stays hidden, or read-only, with it:
// rules about a path in particular hold in a folder that is given. Each such path can be
// granted by itself. The grant need not have been given.
func (s *Session) StaysClosed(ctx context.Context, g grant.Grant) ([]grant.Kept, error) {
	if err := ctx.Err(); err != nil || g.Access == grant.Connect {
		return nil, err
	}
	p, err := s.planWith(g)
	if err != nil {
		return nil, err
	}
	need := policy.Read
	if g.Access == grant.Write {
		need = policy.Write
	}
	return engine.StaysClosed(p, g.Path, need), nil
}

// recordDecision puts an answer into the audit log. The record of the run has it
// as well, and fails the run if the log cannot be written.
func (s *Session) recordDecision(r grant.Request, g *grant.Grant, err error) {
	e := runlog.Decision(r, g, err)
	e.Run, e.Version, e.Argv = r.Run, s.opts.version, r.Command
	_ = s.opts.sink.Record(e)
}

// givenGrants are what [Session.Grant] added.
type givenGrants struct {
	mu   sync.Mutex
	list []grant.Grant
}

// Grant adds access to the session: its next commands have it. Commands that run
// keep the sandbox they have. It needs an Access, and a Path with no links in it, as
// [plan.Denial] has them, or for [grant.Connect] a Host; of the Scope only a time counts. A
// grant that the policy cannot take, such as one of cloche's own files, is an error
// and adds nothing.
func (s *Session) Grant(ctx context.Context, g grant.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.engine.Closed() {
		return ErrClosed
	}
	if err := checkGrant(&g); err != nil {
		return err
	}
	if g.Made.IsZero() {
		g.Made = time.Now()
	}
	s.given.mu.Lock()
	s.given.list = append(s.given.list, g)
	s.given.mu.Unlock()
	s.Refresh()
	if _, err := s.plan(); err != nil {
		s.given.mu.Lock()
		s.given.list = slices.DeleteFunc(s.given.list, func(o grant.Grant) bool { return o == g })
		s.given.mu.Unlock()
		return err
	}
	return nil
}

// checkGrant refuses a grant that would give nothing.
func checkGrant(g *grant.Grant) error {
	if !g.Live(time.Now()) {
		return fmt.Errorf("cloche: the grant of %s is over; set Expires to a time to come, or another Scope", g.Subject())
	}
	switch g.Access {
	case grant.Read, grant.Write:
		if !filepath.IsAbs(g.Path) {
			return fmt.Errorf("cloche: a grant of %q, which is not an absolute path; write it whole", g.Path)
		}
		real, err := safeopen.RealPath(g.Path)
		if err != nil {
			return fmt.Errorf("cloche: a grant of %q: %w", g.Path, err)
		}
		if real != g.Path {
			return fmt.Errorf("cloche: a grant of %q, which leads to %q; grant that path", g.Path, real)
		}
		return nil
	case grant.Connect:
		host, err := policy.ParseHost(g.Host)
		if err == nil {
			err = host.Openable()
		}
		if err != nil {
			return fmt.Errorf("cloche: a grant of a connection: %w", err)
		}
		return nil
	}
	return fmt.Errorf("cloche: the access %q of a grant is not known; write %s, %s or %s", g.Access, grant.Read, grant.Write, grant.Connect)
}

// Grants are what was granted for longer than one run: by [Session.Grant], and at
// the session's desk.
func (s *Session) Grants() []grant.Grant {
	s.given.mu.Lock()
	list := slices.Clone(s.given.list)
	s.given.mu.Unlock()
	list = append(list, s.deskGrants()...)
	now := time.Now()
	return slices.DeleteFunc(list, func(g grant.Grant) bool { return !g.Live(now) || !leadsThere(&g) })
}

// deskGrants are those that were given at the desk in the session's workspace: a desk
// may be that of many sessions.
func (s *Session) deskGrants() []grant.Grant {
	if s.desk == nil {
		return nil
	}
	list := s.desk.Grants()
	if len(list) == 0 {
		return nil
	}
	here, err := safeopen.RealPath(s.opts.workspace)
	return slices.DeleteFunc(list, func(g grant.Grant) bool { return err != nil || g.Workspace != here && g.Workspace != "" })
}

// leadsThere reports whether a granted path still leads where it did: whoever can
// write around it may have put a link there since.
func leadsThere(g *grant.Grant) bool {
	if g.Path == "" {
		return true
	}
	real, err := safeopen.RealPath(g.Path)
	return err == nil && real == g.Path
}

// granted is what the policy has beside its rules.
func (s *Session) granted() []policy.Option {
	list := s.Grants()
	opts := make([]policy.Option, len(list))
	for i := range list {
		opts[i] = list[i].Option()
	}
	return opts
}

func (s *Session) grantKey() string {
	var ids []string
	for _, g := range s.Grants() {
		ids = append(ids, g.ID+g.String())
	}
	return strings.Join(ids, "\n")
}

// askerFor is who asks about what is refused to a run.
func (s *Session) askerFor(p *plan.Plan, run *runlog.Run) *asking.Asker {
	return asking.New(asking.Desk{Desk: s.desk, Given: s.deskGrants, Renew: s.Refresh}, p, run.ID(), run.Argv())
}
