package egress

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// An attempt is the record of one connection while it is made and used.
type attempt struct {
	gate *Gate
	// client and via are the two ends as the client's socket has them.
	client, via netip.AddrPort

	dest  plan.Dest
	conn  plan.Connection
	owner chan owner // nil: nobody to ask, or already told
	once  sync.Once
	track Track // nil: nobody follows it
	isUDP bool
	// ctx ends with the connection, and ends it.
	ctx    context.Context
	cancel context.CancelFunc
	// flushed is closed when all that the client sent has gone to the server.
	flushed chan struct{}
	// rules are those that count for it, with what somebody gave; nil: the gate's.
	rules *plan.NetJudge
	// asked: whoever could be asked about it was.
	asked bool
}

type owner struct {
	pid     int
	program string
}

// attempt begins a record. The owner is looked for at once, because its socket
// may be gone when the record is written, and beside the rest, because it takes
// a while.
func (g *Gate) attempt(protocol string, client, via netip.AddrPort) *attempt {
	a := &attempt{gate: g, client: client, via: via, isUDP: protocol == "udp"}
	a.conn = plan.Connection{Start: time.Now(), Protocol: protocol, Direction: "out"}
	a.ctx, a.cancel = context.WithCancel(g.ctx)
	a.flushed = make(chan struct{})
	if g.config.Begun != nil {
		a.track = g.config.Begun(a.end)
	}
	if find := g.config.Owner; find != nil {
		a.owner = make(chan owner, 1)
		go func(found chan<- owner) {
			pid, program := find(protocol, client, via)
			if a.track != nil {
				a.track.Owned(pid)
			}
			found <- owner{pid, program}
		}(a.owner)
	}
	return a
}

// bound returns a context that ends with the attempt, too.
func (a *attempt) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

const (
	// lastWords is how long what a client has sent before its end may take to leave.
	lastWords = 200 * time.Millisecond
	// lastDatagrams is that for datagrams, of which nobody says that they were the last.
	lastDatagrams = 20 * time.Millisecond
)

// end ends the connection, or the attempt to make it.
func (a *attempt) end() {
	grace := lastWords
	if a.isUDP {
		grace = lastDatagrams
	}
	select {
	case <-a.flushed:
	case <-a.ctx.Done():
	case <-time.After(grace):
	}
	a.cancel()
}

// awaitOwner fills in whose connection it is.
func (a *attempt) awaitOwner() {
	if a.owner != nil {
		o := <-a.owner
		a.owner, a.conn.Pid, a.conn.Program = nil, o.pid, o.program
	}
}

// to notes where it goes.
func (a *attempt) to(names []string, addr netip.Addr, port int) {
	a.dest = plan.Dest{Protocol: a.conn.Protocol, Names: names, Addr: addr, Port: port, Own: a.gate.isOwn(addr)}
	a.conn.Addr, a.conn.Port = addr, port
	if len(names) > 0 {
		a.conn.Name = names[0]
	}
}

// judge returns the rules that count for it.
func (a *attempt) judge() *plan.NetJudge {
	if a.rules != nil {
		return a.rules
	}
	return a.gate.config.Judge()
}

// judged notes what was decided.
func (a *attempt) judged(v *plan.NetVerdict) {
	a.conn.Allowed, a.conn.Rule, a.conn.Subject = v.Allowed, v.Rule, v.Subject
	if v.Name != "" {
		a.conn.Name = v.Name
	}
}

// finish writes the record, once. err is how the connection failed.
func (a *attempt) finish(err error) {
	a.once.Do(func() {
		a.conn.Duration = time.Since(a.conn.Start)
		if err != nil {
			a.conn.Error = cause(err)
		}
		a.awaitOwner()
		if a.cancel != nil {
			a.cancel()
		}
		if a.track != nil {
			a.track.Ended(a.conn)
		} else if tell := a.gate.config.Connection; tell != nil {
			tell(a.conn)
		}
	})
}

// deny tells of a refusal. The record of the connection is written when it
// ends. The name that the client gave to the server need not be the one that it
// connected to.
func (a *attempt) deny(refused *denied) plan.Denial {
	a.judged(&refused.verdict)
	d := a.denial(refused)
	if tell := a.gate.config.Denied; tell != nil {
		tell(d)
	}
	return d
}

// denial describes a refusal.
func (a *attempt) denial(refused *denied) plan.Denial {
	a.awaitOwner()
	dest := a.dest
	if refused.server != "" {
		dest.Names = []string{clip(refused.server, maxName)}
	}
	d := refused.verdict.Denial(refused.op, dest)
	d.Method, d.Path, d.Pid, d.Program = clip(refused.method, maxMethod), clip(refused.path, maxPath), a.conn.Pid, a.conn.Program
	return d
}

// maxPath is how much of a path is told in a refusal. Servers take no more than a
// few times that.
const maxPath = 2 << 10

// maxName is how long a name of a host can be, with some room.
const maxName = 256

// clip bounds what a client can make a message hold.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "..."
}

// cause is the shortest text that says why: system errors bring the addresses
// of both ends along.
func cause(err error) string {
	var own refused
	var no syscall.Errno
	if errors.As(err, &no) && !errors.As(err, &own) {
		return no.Error()
	}
	return err.Error()
}
