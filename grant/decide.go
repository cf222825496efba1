package grant

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotPending says that there is no such request, or that it has been answered.
var ErrNotPending = errors.New("no such request is waiting")

// Decide answers a request. A decision that gives more than was asked for, or that cannot be
// stored, is an error, and the request keeps waiting. A grant with scope always or timed is on
// disk when Decide returns and before the asker gets the answer.
func (d *Desk) Decide(id string, decision Decision) (*Grant, error) {
	g, err := d.proposed(id, decision)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	p, ok := d.waiting[id]
	if !ok {
		d.mu.Unlock()
		return nil, notPending(id)
	}
	err = d.decide(p, g, decision)
	var more []*pending
	switch {
	case err != nil:
	case g != nil:
		more = d.answeredBy(g)
	case decision.Rest && p.request.Run != "":
		more = d.refuseRest(p)
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	d.tell(p)
	for _, p := range more {
		d.tell(p)
	}
	return g, nil
}

// answeredBy answers all waiting requests that a grant covers, so that nobody is asked again.
// The caller holds the mutex.
func (d *Desk) answeredBy(g *Grant) (list []*pending) {
	for _, p := range d.waiting {
		if g.Covers(&p.request) && g.holdsFor(&p.request) && d.finish(p, g, nil) {
			list = append(list, p)
		}
	}
	return list
}

// refuseRest denies all other requests of the same run, now and later. The caller holds the
// mutex.
func (d *Desk) refuseRest(p *pending) (list []*pending) {
	no := p.err.(*DeniedError)
	d.refused[no.Request.Run] = no
	for _, o := range d.waiting {
		if o.request.Run == no.Request.Run && d.finish(o, nil, &DeniedError{Request: o.request, Why: no.Why, By: no.By, Rest: true}) {
			list = append(list, o)
		}
	}
	return list
}

func notPending(id string) error {
	return fmt.Errorf("request %s: %w; list the waiting requests with cloche approve", id, ErrNotPending)
}

// proposed returns the grant that a decision would give, checked. It is nil if the decision
// denies.
func (d *Desk) proposed(id string, decision Decision) (*Grant, error) {
	d.mu.Lock()
	p, ok := d.waiting[id]
	d.mu.Unlock()
	if !ok {
		return nil, notPending(id)
	}
	if !decision.Allow {
		return nil, nil
	}
	g, err := apply(&p.request, decision, d.options.Real, time.Now()) // the request of a pending one does not change
	if err != nil || d.options.Check == nil {
		return g, err
	}
	if err := d.options.Check(*g); err != nil {
		return nil, badDecision(id, fmt.Sprintf("%s %s cannot be given: %v", g.Access, g.Subject(), err), "refuse it, or give something else")
	}
	return g, nil
}

// decide records the answer; g is nil for a denial. The caller holds the mutex.
func (d *Desk) decide(p *pending, g *Grant, decision Decision) error {
	if g == nil {
		d.finish(p, nil, &DeniedError{Request: p.request, Why: refusal(decision), By: decision.By, Rest: decision.Rest && p.request.Run != ""})
		return nil
	}
	if g.stored() {
		if err := d.options.Store.Add(*g); err != nil {
			return err
		}
	}
	d.given = append(slices.DeleteFunc(d.given, func(o Grant) bool { return o.stored() && g.stored() && g.same(o) && !o.outlasts(g) }), *g)
	d.times++
	d.finish(p, g, nil)
	return nil
}

func refusal(d Decision) string {
	why := "refused"
	if d.By != "" {
		why += " by " + d.By
	}
	if d.Rest {
		why += ", with all else that the run asks for"
	}
	if d.Note != "" {
		why += ": " + d.Note
	}
	return why
}
