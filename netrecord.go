package cloche

import (
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// What a command can make this process remember of its network.
const maxConnections = 10000

// lastWords is how long the end of a command waits for records of connections
// that end with it, where the network goes on for other commands.
const lastWords = 200 * time.Millisecond

// A netRecord is what is on record of one command's network. Its zero value is
// ready; run gets a line for each connection.
type netRecord struct {
	run   *auditRun
	asker *asker // nil asks nobody
	begun time.Time

	mu          sync.Mutex
	process     *supervise.Process // nil until it is started
	connections []plan.Connection
	denied      denials.Log
	notes       []string
	open        int           // connections whose owner is known and that have not ended
	closed      chan struct{} // closed when open becomes 0, if somebody waits
}

// belongs reports whether a process is the command's; known is false while the
// command is being started.
func (r *netRecord) belongs(pid int) (yes, known bool) {
	r.mu.Lock()
	p := r.process
	r.mu.Unlock()
	if p == nil {
		return false, false
	}
	return p.Owns(pid), true
}

func (r *netRecord) started(p *supervise.Process) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.process = p
	}
}

// begin counts a connection, whose end calls add with ended set.
func (r *netRecord) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
}

func (r *netRecord) add(c plan.Connection, ended bool) {
	r.run.connection(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.connections) < maxConnections {
		r.connections = append(r.connections, c)
	}
	if !ended {
		return
	}
	if r.open--; r.open == 0 && r.closed != nil {
		close(r.closed)
		r.closed = nil
	}
}

func (r *netRecord) deny(d plan.Denial) {
	if d.Pid != 0 && r.denied.Wants(d) {
		d.Argv = supervise.CommandLine(d.Pid)
	}
	d.Count = 1
	r.denied.Add(d)
}

// settle waits a little for connections that have not ended.
func (r *netRecord) settle() {
	r.mu.Lock()
	if r.open == 0 {
		r.mu.Unlock()
		return
	}
	if r.closed == nil {
		r.closed = make(chan struct{})
	}
	closed := r.closed
	r.mu.Unlock()
	select {
	case <-closed:
	case <-time.After(lastWords):
	}
}

// fill puts what is on record into the result.
func (r *netRecord) fill(result *Result) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Connections = append(result.Connections, r.connections...)
	denied, more := r.denied.All()
	denied = r.asker.notGiven(denied)
	redactDenied(denied)
	result.Denied, result.DeniedMore = append(result.Denied, denied...), result.DeniedMore+more
	result.Notices = r.addNotices(result.Notices)
}
