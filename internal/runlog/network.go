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

// maxConnections limits how much a command can make the log grow. Each connection has a line
// until there are maxConnections with the same verdict. After that, only the first connection
// to each destination has a line, for at most maxConnections destinations. So many connections
// to one destination do not hide one to another, and many allowed ones do not hide a denied
// one.
const maxConnections = 1000

// connections records the connections of one run. Its zero value is ready to use.
type connections struct {
	mu   sync.Mutex
	kept map[bool]int // lines, by verdict
	seen map[string]struct{}
	rest audit.Connection // the sum of those without a line
	err  error
}

// Connection records a connection that ended or was denied. Several goroutines may call it at
// once, until the run's end is recorded. An error is reported at the end of the run; the
// network continues meanwhile, because what has happened cannot be undone.
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

// keeps reports whether a connection gets its own line.
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

// hostOf returns the name of the other end, or else its address.
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

// endConnections writes one line for all connections without a line.
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

// networkEvent returns an event about this run's network. It only reads fields of the run's
// own event that are set at the start, because the end may be written at the same time.
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

// EndingWith is for a wrapped command, whose end is not seen here: closing its network writes
// the rest of its record.
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

// Close closes the network and completes its record.
func (n recordedNetwork) Close() error {
	return errors.Join(n.Closer.Close(), n.run.endConnections())
}
