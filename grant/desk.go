package grant

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/safeopen"
)

// defaultTimeout is how long a request waits for a decision.
const defaultTimeout = 5 * time.Minute

// maxPending limits how many requests a command can put before a person.
const maxPending = 100

// A DeniedError says that a request was denied.
type DeniedError struct {
	Request Request
	// Why says whether somebody denied it, or nobody answered.
	Why string
	// By is who denied it, or empty if nobody did.
	By string
	// Rest: all requests of the run are denied, see [Decision].
	Rest bool
}

// Error says what was denied and why.
func (e *DeniedError) Error() string { return "denied " + e.Request.String() + ": " + e.Why }

// An Approver is asked about each request at a desk. It answers with [Desk.Decide], now or
// later, from any goroutine, or not at all. Withdrawn says that the request no longer needs an
// answer. Neither method may block for long.
type Approver interface {
	Asked(d *Desk, r Request)
	Withdrawn(r Request)
}

// Options configure a desk. With the zero value nobody is asked: a request that is not covered
// already is denied when it times out.
type Options struct {
	// Covered reports whether the current policy already allows a request, and by which rule.
	Covered func(*Request) (rule string, ok bool)
	// Check returns an error if a grant cannot be given. It is called before the grant is
	// stored, without the desk's locks; nil accepts every grant.
	Check func(Grant) error
	// Keeps returns the paths that a grant would leave hidden or read-only below its path.
	// They are shown to the person who decides. nil returns none.
	Keeps func(Grant) []Kept
	// Real resolves a path; nil follows every link and "..".
	Real func(string) (string, error)
	// Timeout is how long a request waits; 0 means five minutes.
	Timeout time.Duration
	// Store stores grants with scope always or timed. If it is nil, such decisions are errors.
	Store *Store
	// Approvers are asked in this order; the first decision counts.
	Approvers []Approver
	// Decided, unless nil, is called with every answer.
	Decided func(Request, *Grant, error)
}

// A Desk is where requests wait for a decision. It is safe for concurrent use.
type Desk struct {
	options Options
	mu      sync.Mutex
	waiting map[string]*pending
	given   []Grant
	times   int // how many grants were given
	// refused are the runs for which nobody is asked any more, with the answer.
	refused map[string]*DeniedError
	closed  bool
}

// pending is a waiting request. The desk's mutex guards it until done is closed; after that it
// does not change.
type pending struct {
	request Request
	done    chan struct{}
	grant   *Grant
	err     error
	// askers is how many callers wait for it: for equal requests a person is asked once.
	askers int
}

// NewDesk makes a desk.
func NewDesk(o Options) *Desk {
	if o.Real == nil {
		o.Real = safeopen.RealPath
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	return &Desk{options: o, waiting: map[string]*pending{}, refused: map[string]*DeniedError{}}
}

// Ask asks for access and waits for the answer. If the request is already allowed, it returns
// at once and nobody is asked. An invalid request is an error. If the request is denied, times
// out, or the context ends, the error is a *DeniedError.
func (d *Desk) Ask(ctx context.Context, r Request) (*Grant, error) {
	if err := normalize(&r, d.options.Real); err != nil {
		return nil, err
	}
	for {
		g, seen := d.covered(&r)
		if g != nil {
			return g, nil
		}
		if d.options.Keeps != nil && r.Access != Connect {
			r.Keeps = d.options.Keeps(Grant{Path: r.Path, Access: r.Access})
		}
		p, fresh, err := d.enter(r, seen)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue // somebody decided at the same moment
		}
		if fresh {
			for _, a := range d.options.Approvers {
				a.Asked(d, p.request)
			}
		}
		return d.wait(ctx, p)
	}
}

// holdsFor reports whether the grant applies to the request's workspace and run.
func (g *Grant) holdsFor(r *Request) bool {
	return g.Workspace == r.Workspace && (g.Scope != Once || g.Run == r.Run)
}

// covered returns a grant for a request that is already allowed. Otherwise it returns nil and
// how many grants had been given by then.
func (d *Desk) covered(r *Request) (g *Grant, seen int) {
	if d.options.Covered != nil {
		if rule, ok := d.options.Covered(r); ok {
			return &Grant{Path: r.Path, Host: r.Host, Access: r.Access, Scope: Once, Workspace: r.Workspace, Reason: "allowed already: " + rule, Made: time.Now().UTC()}, 0
		}
	}
	list, seen := d.holding()
	for _, g := range list {
		if g.Covers(r) && g.holdsFor(r) {
			return &g, seen
		}
	}
	return nil, seen
}

// Grants returns the desk's live grants for longer than one run.
func (d *Desk) Grants() []Grant {
	list, _ := d.holding()
	return slices.DeleteFunc(list, func(g Grant) bool { return g.Scope == Once })
}

// holding returns the desk's live grants, and how many were given. A stored grant counts until
// it is revoked in the store.
func (d *Desk) holding() (list []Grant, times int) {
	d.mu.Lock()
	list, times = slices.Clone(d.given), d.times
	d.mu.Unlock()
	var kept []Grant
	if slices.ContainsFunc(list, func(g Grant) bool { return g.stored() }) {
		kept, _ = d.options.Store.List() // an unreadable store counts as empty
	}
	now := time.Now()
	return slices.DeleteFunc(list, func(g Grant) bool {
		return !g.Live(now) || g.stored() && !slices.ContainsFunc(kept, g.same)
	}), times
}

// stored reports whether the grant is in a store.
func (g *Grant) stored() bool { return g.Scope == Always || g.Scope == Timed }

// enter adds a request to the waiting ones, or joins an equal one of the same run; another run
// is another command. It returns nil if a grant was given since the caller checked (seen).
func (d *Desk) enter(r Request, seen int) (p *pending, fresh bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times != seen {
		return nil, false, nil
	}
	if d.closed {
		return nil, false, &DeniedError{Request: r, Why: "nobody is there to decide any more"}
	}
	if no := d.refused[r.Run]; no != nil {
		return nil, false, &DeniedError{Request: r, Why: no.Why, By: no.By, Rest: true}
	}
	for _, other := range d.waiting {
		if o := &other.request; o.Subject() == r.Subject() && o.Access == r.Access && o.Workspace == r.Workspace && o.Run == r.Run {
			other.askers++
			return other, false, nil
		}
	}
	if len(d.waiting) >= maxPending {
		return nil, false, &DeniedError{Request: r, Why: fmt.Sprintf("%d requests are waiting already", maxPending)}
	}
	r.ID = newID()
	r.Made = time.Now().UTC()
	r.Expires = r.Made.Add(d.options.Timeout)
	p = &pending{request: r, done: make(chan struct{}), askers: 1}
	d.waiting[r.ID] = p
	return p, true, nil
}

// newID returns an id that is short enough to be typed. It has 30 of the 130 random bits of
// rand.Text. That is enough for the requests of one desk and the grants of one store; the
// store rejects a duplicate.
func newID() string { return strings.ToLower(rand.Text()[:6]) }

// wait waits for the answer. If the caller gives up, the request continues as long as others
// wait for the same answer.
func (d *Desk) wait(ctx context.Context, p *pending) (*Grant, error) {
	timer := time.NewTimer(time.Until(p.request.Expires))
	defer timer.Stop()
	denied := &DeniedError{Request: p.request}
	select {
	case <-p.done:
		return p.grant, p.err
	case <-timer.C:
		denied.Why = "nobody decided in " + d.options.Timeout.String()
	case <-ctx.Done():
		denied.Why = "the asker is gone"
	}
	d.mu.Lock()
	p.askers--
	last := p.askers == 0 && d.finish(p, nil, denied)
	d.mu.Unlock()
	if last {
		d.tell(p)
	}
	select {
	case <-p.done: // somebody decided at the same moment
		return p.grant, p.err
	default:
		return nil, denied
	}
}

// finish sets the answer, unless there is one already. The caller holds the mutex, and calls
// tell afterwards.
func (d *Desk) finish(p *pending, g *Grant, err error) bool {
	if d.waiting[p.request.ID] != p {
		return false
	}
	delete(d.waiting, p.request.ID)
	p.grant, p.err = g, err
	close(p.done)
	return true
}

// tell reports to the approvers and to Decided that a request is answered.
func (d *Desk) tell(p *pending) {
	for _, a := range d.options.Approvers {
		a.Withdrawn(p.request)
	}
	if d.options.Decided != nil {
		d.options.Decided(p.request, p.grant, p.err)
	}
}

// Pending returns the requests that wait, oldest first.
func (d *Desk) Pending() []Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Request
	for _, p := range d.waiting {
		list = append(list, p.request)
	}
	slices.SortFunc(list, func(a, b Request) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Close denies all waiting and all later requests.
func (d *Desk) Close() {
	d.mu.Lock()
	d.closed = true
	var ended []*pending
	for _, p := range d.waiting {
		d.finish(p, nil, &DeniedError{Request: p.request, Why: "nobody is there to decide any more"})
		ended = append(ended, p)
	}
	d.mu.Unlock()
	for _, p := range ended {
		d.tell(p)
	}
}
