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

func (r *netRecord) add(c plan.Connection) {
	r.run.connection(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.connections) < maxConnections {
		r.connections = append(r.connections, c)
	}
}

func (r *netRecord) deny(d plan.Denial) {
	if d.Pid != 0 && r.denied.Wants(d) {
		d.Argv = supervise.CommandLine(d.Pid)
	}
	d.Count = 1
	r.denied.Add(d)
}

// deniedSoFar is what was refused while the command runs.
func (r *netRecord) deniedSoFar() []plan.Denial {
	if r == nil {
		return nil
	}
	list, _ := r.denied.All()
	return list
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
