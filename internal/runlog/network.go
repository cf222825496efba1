package runlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// What a command can make the log grow by: each connection has a line until
// there are maxConnections of a verdict, and after that the first to each
// destination, of which as many are told apart. So neither many connections to
// one place hide the one to another, nor many that are allowed one that is not.
const maxConnections = 1000

// connections writes the connections of one run. Its zero value is ready.
type connections struct {
	mu   sync.Mutex
	kept map[bool]int // lines, by verdict
	seen map[string]struct{}
	rest audit.Connection // those without a line
	err  error
}

// Connection records one that ended or was refused. It may be called by many
// goroutines at once, until the run's end is recorded. An error comes up there:
// the network goes on meanwhile, since what has happened cannot be undone.
func (r *Run) Connection(c plan.Connection) {
	if r == nil {
		return
	}
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	if !r.net.keeps(&c) {
		r.net.count(&c)
		return
	}
	r.net.err = errors.Join(r.net.err, r.sink.Record(r.connectionEvent(c)))
}

// keeps reports whether a connection gets a line.
func (n *connections) keeps(c *plan.Connection) bool {
	if n.err != nil {
		return false // one error is enough, and each try may wait for a lock
	}
	if n.kept == nil {
		n.kept, n.seen = map[bool]int{}, map[string]struct{}{}
	}
	n.kept[c.Allowed]++
	key := strconv.FormatBool(c.Allowed) + c.Direction + " " + c.Protocol + " " + hostOf(c) + " " + strconv.Itoa(c.Port)
	_, known := n.seen[key]
	if len(n.seen) < maxConnections {
		n.seen[key] = struct{}{}
	} else {
		known = true
	}
	return n.kept[c.Allowed] <= maxConnections || !known
}

// hostOf is the other end by its name, or else by its address.
func hostOf(c *plan.Connection) string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Addr.IsValid():
		return c.Addr.String()
	}
	return ""
}

func (n *connections) count(c *plan.Connection) {
	n.rest.Count++
	n.rest.Sent += c.Sent
	n.rest.Received += c.Received
	if !c.Allowed {
		n.rest.Refused++
	}
}

// endConnections writes the line for those that had none of their own.
func (r *Run) endConnections() error {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	if r.net.rest.Count > 0 && r.net.err == nil {
		e, rest := r.networkEvent(), r.net.rest
		e.Connection = &rest
		r.net.err = r.sink.Record(e)
	}
	if r.net.err != nil {
		return fmt.Errorf("cloche: the audit log cannot be written: %w", r.net.err)
	}
	return nil
}

// networkEvent is an event of this run about its network. Only what was known at
// the start is read of the run's own event: its end may be written meanwhile.
func (r *Run) networkEvent() audit.Event {
	e := &r.event
	return audit.Event{
		Kind: audit.Connected, Run: e.Run, Version: e.Version, PID: e.PID, UID: e.UID,
		Workspace: e.Workspace, Backend: e.Backend, Confined: e.Confined,
	}
}

func (r *Run) connectionEvent(c plan.Connection) audit.Event {
	e := r.networkEvent()
	e.DurationMS, e.Rule, e.RuleSubject, e.Error = c.Duration.Milliseconds(), c.Rule, c.Subject, c.Error
	e.Verdict = Deny
	if c.Allowed {
		e.Verdict = Allow
	}
	if !c.Start.IsZero() {
		e.Time = c.Start.Add(c.Duration)
	}
	e.Connection = &audit.Connection{
		Direction: c.Direction, Protocol: c.Protocol, Name: c.Name, Port: c.Port,
		Sent: c.Sent, Received: c.Received, Requests: c.Requests, PID: c.Pid, Program: c.Program,
	}
	if c.Addr.IsValid() {
		e.Connection.Address = c.Addr.String()
	}
	e.Subject = e.Connection.Target()
	return e
}

// EndingWith is for a command whose end is not seen here, a wrapped one: the end
// of its network writes what is left to be written of it.
func (r *Run) EndingWith(make supervise.MakeNetwork) supervise.MakeNetwork {
	if make == nil {
		return nil
	}
	return func(netns *os.File) (io.Closer, error) {
		network, err := make(netns)
		if err != nil {
			return nil, err
		}
		return recordedNetwork{network, r}, nil
	}
}

type recordedNetwork struct {
	io.Closer
	run *Run
}

// Close ends the network and completes its record.
func (n recordedNetwork) Close() error {
	return errors.Join(n.Closer.Close(), n.run.endConnections())
}
