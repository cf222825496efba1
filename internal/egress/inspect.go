package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file is about connections whose TLS ends in cloche. Package inspect carries them; the gate
// judges and records their requests.

// An inspected is one such connection.
type inspected struct {
	flow *Flow
	// mu guards the record: requests of HTTP/2 are judged at once.
	mu sync.Mutex
	// dialed: the connection that the flow was made with is in use.
	dialed bool
}

type inspectedKey struct{}

// inspects reports whether a decision about a connection means that its TLS ends here.
func (g *Gate) inspects(v *judge.NetDecision) bool { return v.Inspect && g.config.Inspector != nil }

// inspect carries a connection whose greeting was read and judged.
func (f *Flow) inspect(client net.Conn, first *opening) {
	a, t := f.attempt, &inspected{flow: f}
	host := first.hello.serverName
	if host == "" {
		host = a.Name
	}
	if host == "" {
		host = a.dest.Addr.String()
	}
	ctx := context.WithValue(a.Ctx, inspectedKey{}, t)
	err := a.gate.config.Inspector.Serve(ctx, client, first.data, host, uint16(a.dest.Port), t.dial)
	t.mu.Lock()
	defer t.mu.Unlock()
	f.note(err)
}

// dial returns the connection to the server, and a new one if the server has ended the first.
func (t *inspected) dial(ctx context.Context) (net.Conn, error) {
	a := t.flow.attempt
	t.mu.Lock()
	first := !t.dialed
	t.dialed = true
	t.mu.Unlock()
	if first {
		return t.flow.upstream, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.gate.limits.dial)
	defer cancel()
	conn, err := a.gate.config.Dial(ctx, "tcp", netip.AddrPortFrom(a.dest.Addr, uint16(a.dest.Port)).String())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(a.Ctx, func() { shut(conn) })
	return conn, nil
}

// errNotInspected: a function of an inspector was called without the context of its connection.
var errNotInspected = errors.New("the connection of the request is not known")

// JudgeRequest judges a request of an inspected connection. It is for inspection.Config.
func JudgeRequest(ctx context.Context, q inspection.Request) error {
	t, ok := ctx.Value(inspectedKey{}).(*inspected)
	if !ok {
		return errNotInspected
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.flow.attempt
	a.Requests++
	v := a.judge().RequestTLS(a.dest, q.Method, q.Host, q.Target)
	if v.Allowed {
		return nil
	}
	d := a.deny(&denied{verdict: v, op: plan.OpRequest, server: q.Host, method: q.Method, path: q.Path, tls: true})
	return &inspection.Refusal{Text: denials.Line(&d), JSON: encode(textOf(&d))}
}

// LenientHost reports whether no rule that applies to the connection is about methods or paths of a host. It is for
// inspection.Config.
func LenientHost(ctx context.Context, host string, port uint16) bool {
	t, ok := ctx.Value(inspectedKey{}).(*inspected)
	return ok && t.flow.attempt.judge().Lenient(host, int(port))
}

// RecordRequest records a request of an inspected connection. It is for inspection.Config.
func RecordRequest(ctx context.Context, e inspection.Exchange) {
	t, ok := ctx.Value(inspectedKey{}).(*inspected)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.flow.attempt
	a.Count(e.Sent, e.Received)
	if len(a.Inspected) < maxInspected {
		a.Inspected = append(a.Inspected, plan.Request{Method: clip(e.Method, maxMethod), Path: clip(e.Path, maxPath), Status: e.Status, Secrets: e.Secrets})
	}
	switch {
	case e.Err == nil || e.Reported:
	case e.Refused: // servers could read it in two ways
		a.deny(&denied{verdict: *unjudgeable(e.Err.Error()), op: plan.OpRequest, server: e.Host, method: e.Method, path: e.Path, tls: true})
	default:
		t.flow.note(e.Err)
	}
}

// maxInspected bounds the requests of a connection that are recorded one by one.
const maxInspected = 1000

// MisusedSecret returns the function that reports a placeholder that was sent where it does
// not belong. It is for inspection.Config. origins are those of the secrets, by their names.
func MisusedSecret(origins map[string]policy.Origin) func(context.Context, inspection.Misuse) {
	return func(ctx context.Context, m inspection.Misuse) {
		t, ok := ctx.Value(inspectedKey{}).(*inspected)
		if !ok {
			return
		}
		reason := "the placeholder of the secret is in " + m.Where + ", where it is not replaced"
		if m.Foreign {
			reason = "the placeholder of the secret was sent to a host that the secret is not for, in " + m.Where
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		v := judge.NetDecision{Decision: plan.Decision{Rule: "secrets", Subject: m.Secret, Reason: reason, Origin: origins[m.Secret]}}
		t.flow.attempt.deny(&denied{verdict: v, op: plan.OpRequest, server: m.Host, method: m.Method, path: m.Path, tls: true})
	}
}
