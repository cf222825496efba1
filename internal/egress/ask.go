package egress

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// Where somebody can be asked, a TCP connection that a rule refuses is accepted and
// waits for the answer. On yes it is judged and made anew, by the rules with what was
// given and by nothing else: the name is looked up only then, the addresses that it
// leads to are judged, and so is what the client says first. What was given counts
// for the attempt alone; the gate's rules stay as they are, so that it is not the
// next command's in the same sandbox.

// A question is a connection that somebody can be asked about.
type question struct {
	attempt *attempt
	verdict plan.NetVerdict
	op      plan.Op
	// try judges and makes the connection.
	try func() (*Flow, *Refusal)
}

// askable reports whether a person could lift what refuses the attempt: that no
// rule allows it. A name that leads to what is not public is not asked about, for
// its owner chooses where it leads; only who connects to the address itself is.
func (a *attempt) askable(v *plan.NetVerdict) bool {
	if a.asked || a.gate.config.Ask == nil || a.conn.Protocol != "tcp" {
		return false
	}
	switch v.Rule {
	case plan.RuleNetworkAllow:
		return true
	case plan.RuleNetworkPrivate:
		return len(a.dest.Names) == 0 && !inSinkhole(a.dest.Addr)
	}
	return false
}

// ask is a refusal that asks first.
func (a *attempt) ask(op plan.Op, v *plan.NetVerdict) *Refusal {
	d := a.denial(&denied{verdict: *v, op: op})
	return &Refusal{gate: a.gate, denial: d, asks: &question{attempt: a, verdict: *v, op: op}}
}

// open makes a connection. What a rule refuses is tried once more by what was given
// before. What is refused still is left to be asked about, if it may be.
func (a *attempt) open(try func() (*Flow, *Refusal)) (*Flow, *Refusal) {
	flow, refusal := try()
	if refusal == nil || refusal.asks == nil {
		return flow, refusal
	}
	rules, ask := a.gate.config.Given(refusal.denial)
	if rules != nil {
		a.rules = rules
		flow, refusal = try()
	}
	switch {
	case refusal == nil || refusal.asks == nil:
	case ask:
		refusal.asks.try = try
	default:
		refusal = refusal.asks.deny()
	}
	return flow, refusal
}

// deny ends a question with no: the refusal is recorded.
func (q *question) deny() *Refusal {
	q.attempt.asked = true
	return q.attempt.refuse(q.op, &q.verdict)
}

// Close gives up a refusal whose client is gone before it could be served.
func (r *Refusal) Close() error {
	if r.asks != nil {
		r.asks.deny()
	}
	return nil
}

// serveDecided waits for the answer and serves the client by it.
func (r *Refusal) serveDecided(client net.Conn, in *bufio.Reader) {
	flow, refusal := r.decided(client, in)
	switch {
	case refusal == nil:
		flow.relay(client, takeBuffered(in))
	case refusal.explains():
		refusal.explain(client, in)
	default:
		reset(client)
	}
}

// decided waits for the answer, as long as the client does, and makes the
// connection on yes. in reads from the client.
func (r *Refusal) decided(client net.Conn, in *bufio.Reader) (*Flow, *Refusal) {
	q := r.asks
	ctx, cancel := context.WithCancel(q.attempt.ctx)
	defer cancel()
	stop := watch(client, in, cancel)
	rules := r.gate.config.Ask(ctx, r.denial)
	stop()
	if rules == nil {
		return nil, q.deny()
	}
	q.attempt.asked, q.attempt.rules = true, rules
	return q.try()
}

// watch calls gone when the client ends the connection. What it says meanwhile stays in
// the buffer; when that is full, the end is not seen. The watch is over when stop
// returns.
func watch(client net.Conn, in *bufio.Reader, gone func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in.Buffered() < in.Size() {
			if _, err := in.Peek(in.Buffered() + 1); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					gone()
				}
				return
			}
		}
	}()
	return func() {
		_ = client.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = client.SetReadDeadline(time.Time{})
	}
}
