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

// maxPending bounds what a command can make a person look at.
const maxPending = 100

// A DeniedError is the answer no.
type DeniedError struct {
	Request Request
	// Why says whether somebody refused, or nobody answered.
	Why string
	// By is who refused; empty if nobody did.
	By string
	// Rest: it is the answer to all that the run asks for, see [Decision].
	Rest bool
}

// Error says what was refused and why.
func (e *DeniedError) Error() string { return "denied " + e.Request.String() + ": " + e.Why }

// An Approver is asked about each request that comes to a desk. It decides by
// [Desk.Decide], now or later, from any goroutine, or not at all. Withdrawn
// says that there is nothing to decide any more. Neither may block for long.
type Approver interface {
	Asked(d *Desk, r Request)
	Withdrawn(r Request)
}

// Options say how a desk works. With the zero value nobody is asked:
// what is not allowed already is refused when the request times out.
type Options struct {
	// Covered reports whether the policy in force allows what is asked for, and
	// the rule that does.
	Covered func(*Request) (rule string, ok bool)
	// Check reports why what somebody gives cannot be given. It is called before the
	// grant is kept, and without the desk's locks; nil has no objection.
	Check func(Grant) error
	// Keeps returns what a grant would leave closed in its path; nil is nothing. They
	// are shown to whoever decides.
	Keeps func(Grant) []Kept
	// Real makes a path real; nil follows every link and "..".
	Real func(string) (string, error)
	// Timeout is how long a request waits; 0 is five minutes.
	Timeout time.Duration
	// Store keeps what is granted always or for a time; nil has no place for
	// them, and such decisions are refused.
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
	times   int // how often something was given
	// refused are the runs that are asked about no more, with the answer.
	refused map[string]*DeniedError
	closed  bool
}

// pending is a request that waits. The desk's mutex guards it until done is
// closed; from then on it does not change.
type pending struct {
	request Request
	done    chan struct{}
	grant   *Grant
	err     error
	// askers is how many wait for it: equal requests are asked once.
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

// Ask asks for access and waits for the answer. What is allowed already is
// answered at once, and nobody is asked. A request that makes no sense is an
// error. The error is a *DeniedError if the answer is no, which it is also when the time is
// up or the context ends.
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
			continue // somebody decided in this very moment
		}
		if fresh {
			for _, a := range d.options.Approvers {
				a.Asked(d, p.request)
			}
		}
		return d.wait(ctx, p)
	}
}

// holdsFor reports whether the grant holds where the request comes from.
func (g *Grant) holdsFor(r *Request) bool {
	return g.Workspace == r.Workspace && (g.Scope != Once || g.Run == r.Run)
}

// covered returns a grant for what is allowed already, or nil and how often something
// had been given by then.
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

// Grants returns what was given at this desk for longer than one run.
func (d *Desk) Grants() []Grant {
	list, _ := d.holding()
	return slices.DeleteFunc(list, func(g Grant) bool { return g.Scope == Once })
}

// holding are the grants of the desk that hold now, and how often something was given.
// What is kept in the store holds until it is revoked there.
func (d *Desk) holding() (list []Grant, times int) {
	d.mu.Lock()
	list, times = slices.Clone(d.given), d.times
	d.mu.Unlock()
	var kept []Grant
	if slices.ContainsFunc(list, func(g Grant) bool { return g.stored() }) {
		kept, _ = d.options.Store.List() // one that cannot be read has nothing
	}
	now := time.Now()
	return slices.DeleteFunc(list, func(g Grant) bool {
		return !g.Live(now) || g.stored() && !slices.ContainsFunc(kept, g.same)
	}), times
}

// stored reports whether the grant is in a store.
func (g *Grant) stored() bool { return g.Scope == Always || g.Scope == Timed }

// enter puts a request among those that wait, or joins an equal one of the same run:
// the command of another is another. It does nothing if more was given than the caller
// has seen.
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

// newID is short enough to be typed. Of the 130 random bits of rand.Text it has
// thirty, for what lives at one desk and in one store; the latter refuses an id
// that it has.
func newID() string { return strings.ToLower(rand.Text()[:6]) }

// wait waits for the answer. A caller that gives up does not end the request while others
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
	case <-p.done: // somebody decided in this very moment
		return p.grant, p.err
	default:
		return nil, denied
	}
}

// finish gives the answer, unless there is one already. The caller holds the
// mutex, and tells the others afterwards.
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

// Close refuses all that waits and all that comes.
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
