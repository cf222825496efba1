package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// newRecord begins the record of a connection.
func newRecord(rule string, port plan.Port) plan.Connection {
	c := plan.Connection{Start: time.Now(), Protocol: "tcp", Allowed: true, Rule: rule, Subject: port.String(), Direction: "publish"}
	if rule == ruleForward {
		c.Direction = "forward"
	}
	if port.Protocol == policy.ProtocolUDP {
		c.Protocol = "udp"
	}
	return c
}

// A passage is a connection or a flow of datagrams of a port: its record, and who
// follows it.
type passage struct {
	plan.Connection
	ports *Ports
	track egress.Track // nil: nobody follows it
	// ctx ends with the connection, and ends it.
	ctx    context.Context
	cancel context.CancelFunc
	// flushed tells that all that is to leave the sandbox has; left is closed then.
	flushed func()
	left    chan struct{}
}

// follow begins a connection, before anything of it reaches the sandbox. flushed
// is told once all that is to leave has; nil tells nobody.
func (p *Ports) follow(record plan.Connection, flushed func()) *passage {
	c := &passage{Connection: record, ports: p, left: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	c.flushed = sync.OnceFunc(func() {
		close(c.left)
		if flushed != nil {
			flushed()
		}
	})
	if p.begun != nil {
		c.track = p.begun(c.end)
	}
	return c
}

// end lets out what is on its way, and ends the connection.
func (c *passage) end() {
	select {
	case <-c.left:
	case <-c.ctx.Done():
	case <-time.After(drainTime):
	}
	c.cancel()
}

// owner looks for the process beside other work. The function that it returns
// waits for the answer.
func (c *passage) owner(local, remote netip.AddrPort) func() (int, string) {
	var pid int
	var program string
	done := make(chan struct{})
	c.ports.work.Go(func() {
		defer close(done)
		pid, program = c.ports.inside.Owner(c.Protocol, local, remote)
		if c.track != nil {
			c.track.Owned(pid)
		}
	})
	return func() (int, string) {
		<-done
		return pid, program
	}
}

// finish hands the record over.
func (c *passage) finish() {
	c.cancel()
	c.Duration = time.Since(c.Start)
	if c.track != nil {
		c.track.Ended(c.Connection)
		return
	}
	c.ports.record(c.Connection)
}
