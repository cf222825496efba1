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

// WithAsk makes denied calls of commands wait at a desk until somebody decides: see
// [Session.Desk]. If the answer is yes, the waiting call itself succeeds: cloche opens the
// file or makes the connection and hands it to the process. The sandbox does not change.
//
// In network mode user, TCP connections wait; the client's side is accepted meanwhile.
// Datagrams, pings, and single requests on an open connection are denied without a question.
//
// Calls that open, create, move, remove or truncate files can wait, on backends that have a
// broker (native and bwrap). Reading a file's metadata, listing a hidden folder and running a
// hidden program are denied without a question. A grant for longer than the run also applies
// to the sandbox of the next command.
//
// Every open for reading is then checked by the broker, which makes programs that open many
// files slower.
//
// The session records each decision in its audit log. If there is no approver and nobody
// answers at the desk, each request is denied when its time is up.
func WithAsk(o grant.Options) Option { return func(opts *options) { opts.ask = &o } }

// WithDesk is [WithAsk] with a desk that outlives the session, for programs with many
// sessions. The desk's owner closes it and records its decisions.
func WithDesk(d *grant.Desk) Option { return func(opts *options) { opts.desk = d } }

// Desk returns the desk where denied calls of the session's commands wait, or nil without
// [WithAsk] or [WithDesk].
func (s *Session) Desk() *grant.Desk { return s.desk }

// openDesk sets the session's desk: the one of WithDesk, or a new one for WithAsk.
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
			kept, _ := s.StaysClosed(context.Background(), g) // Check reports the error
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

// tryGrant returns an error if no plan can be made with the grant: the next command would not
// start with it.
func (s *Session) tryGrant(g grant.Grant) error {
	_, err := s.planWith(g)
	return err
}

// planWith makes the plan with one more grant.
func (s *Session) planWith(g grant.Grant) (*plan.Plan, error) {
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return nil, err
	}
	return s.engine.Resolve(s.engine.Effective().With(g.Option()), snap, resolve.Request{})
}

// StaysClosed returns the paths in a grant's folder that stay hidden or read-only with the
// grant, because a more specific rule is about them. Each such path can be granted by itself.
// The grant need not have been given.
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

// recordDecision writes an answer to the audit log. It ignores errors: the run's own record
// contains the answer as well, and fails the run if the log cannot be written.
func (s *Session) recordDecision(r grant.Request, g *grant.Grant, err error) {
	e := runlog.Decision(r, g, err)
	e.Run, e.Version, e.Argv = r.Run, s.opts.version, r.Command
	_ = s.opts.sink.Record(e)
}

// givenGrants are the grants that [Session.Grant] added.
type givenGrants struct {
	mu   sync.Mutex
	list []grant.Grant
}

// Grant gives the session's next commands more access. Running commands keep their sandbox.
// The grant needs an Access and a Path without symbolic links, as in [plan.Denial], or a Host
// for [grant.Connect]. Of the Scope, only an expiry time has an effect. A grant that the
// policy cannot take, such as one for cloche's own files, is an error and adds nothing.
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

// checkGrant returns an error for a grant that has expired or is malformed.
func checkGrant(g *grant.Grant) error {
	if !g.Live(time.Now()) {
		return fmt.Errorf("cloche: the grant of %s has expired; set Expires to a future time, or use another Scope", g.Subject())
	}
	switch g.Access {
	case grant.Read, grant.Write:
		if !filepath.IsAbs(g.Path) {
			return fmt.Errorf("cloche: a grant of %q, which is not an absolute path; write an absolute path", g.Path)
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

// Grants returns the live grants for longer than one run, from [Session.Grant] and from the
// session's desk.
func (s *Session) Grants() []grant.Grant {
	s.given.mu.Lock()
	list := slices.Clone(s.given.list)
	s.given.mu.Unlock()
	list = append(list, s.deskGrants()...)
	now := time.Now()
	return slices.DeleteFunc(list, func(g grant.Grant) bool { return !g.Live(now) || !leadsThere(&g) })
}

// deskGrants returns the desk's grants for the session's workspace. Several sessions may share
// one desk.
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

// leadsThere reports whether a granted path is still free of symbolic links. A process that
// can write around it may have replaced it with a link since the grant.
func leadsThere(g *grant.Grant) bool {
	if g.Path == "" {
		return true
	}
	real, err := safeopen.RealPath(g.Path)
	return err == nil && real == g.Path
}

// granted returns the grants as policy options, to be added to the policy's rules.
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

// askerFor returns the asker that brings denied calls of a run to the desk.
func (s *Session) askerFor(p *plan.Plan, run *runlog.Run) *asking.Asker {
	return asking.New(asking.Desk{Desk: s.desk, Given: s.deskGrants, Renew: s.Refresh}, p, run.ID(), run.Argv())
}
