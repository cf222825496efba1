package asking

import (
	"context"
	"errors"
	"slices"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/plan"
)

// wasRefused reports whether a person refused this, or more than this, to the run
// before.
func (a *Asker) wasRefused(r *grant.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.silent || slices.ContainsFunc(a.refused, func(o grant.Request) bool {
		g := grant.Grant{Path: o.Path, Host: o.Host, Access: r.Access}
		return (o.Access == r.Access || o.Access == grant.Read) && g.Covers(r)
	})
}

// noteRefusal remembers a refusal, and adds a notice. If the run stopped waiting, there
// was no answer to remember.
func (a *Asker) noteRefusal(ctx context.Context, r grant.Request, err error) {
	if ctx.Err() != nil {
		return
	}
	why := err.Error()
	var denied *grant.DeniedError
	if errors.As(err, &denied) {
		why = denied.Why
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent {
		return
	}
	a.silent = denied != nil && denied.Rest
	a.refused = append(a.refused, r)
	a.notice(plan.Notice{Kind: plan.NoticeGrantDenied, Text: r.String() + " was asked for: " + why})
}

// noteLess remembers what was asked for if less, or something else, was granted. That
// is the needed path, if the grant does not cover it, and the access, if only reading
// was granted.
func (a *Asker) noteLess(r, need *grant.Request, g *grant.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !g.Covers(need) {
		a.refused = append(a.refused, *need)
	}
	if g.Access != r.Access {
		a.refused = append(a.refused, grant.Request{Path: g.Path, Host: g.Host, Access: r.Access})
	}
}

func (a *Asker) noteGrant(g *grant.Grant) {
	if g.Scope != grant.Once {
		a.desk.Renew()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notice(plan.Notice{Kind: plan.NoticeGranted, Text: g.String() + " was granted while the command waited", Origin: g.Origin()})
}

// notice adds a notice, unless it is already there. The caller holds the mutex.
func (a *Asker) notice(n plan.Notice) {
	if !slices.Contains(a.notices, n) {
		a.notices = append(a.notices, n)
	}
}

// Notices returns the notices about what was decided.
func (a *Asker) Notices() []plan.Notice {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.notices)
}
