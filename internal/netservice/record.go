package netservice

import (
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// What a command can make this process remember of its network.
const maxConnections = 10000

// A Record is what is on record of one command's network. run gets a line for each
// connection.
type Record struct {
	run   *runlog.Run
	asker Asker // nil asks nobody
	begun time.Time

	mu          sync.Mutex
	process     *supervise.Process // nil until it is started
	connections []plan.Connection
	denied      denials.Log
	notes       []string
}

// belongs reports whether a process is the command's; known is false while the
// command is being started.
func (r *Record) belongs(pid int) (yes, known bool) {
	r.mu.Lock()
	p := r.process
	r.mu.Unlock()
	if p == nil {
		return false, false
	}
	return p.Owns(pid), true
}

// Started says which process the command is.
func (r *Record) Started(p *supervise.Process) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.process = p
	}
}

func (r *Record) add(c plan.Connection) {
	r.run.Connection(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.connections) < maxConnections {
		r.connections = append(r.connections, c)
	}
}

func (r *Record) deny(d plan.Denial) {
	if d.Pid != 0 && r.denied.Wants(d) {
		d.Argv = supervise.CommandLine(d.Pid)
	}
	d.Count = 1
	r.denied.Add(d)
}

// DeniedSoFar is what was refused while the command runs.
func (r *Record) DeniedSoFar() []plan.Denial {
	if r == nil {
		return nil
	}
	list, _ := r.denied.All()
	return list
}

// A Summary is all that is on record of a command's network.
type Summary struct {
	Connections []plan.Connection
	Denied      []plan.Denial
	DeniedMore  int
	Notices     []plan.Notice
}

// Summary returns what is on record.
func (r *Record) Summary() (s Summary) {
	if r == nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Connections = slices.Clone(r.connections)
	s.Denied, s.DeniedMore = r.denied.All()
	if r.asker != nil {
		s.Denied = r.asker.NotGiven(s.Denied)
	}
	for _, text := range r.notes {
		s.Notices = append(s.Notices, plan.Notice{Kind: plan.NoticeNetwork, Text: text})
	}
	return s
}

// maxNotices bounds what is told of one command's network in words.
const maxNotices = 10

func (r *Record) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notes) < maxNotices && !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}
