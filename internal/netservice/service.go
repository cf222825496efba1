// Package netservice serves the network of a sandbox and keeps a record for each command
// in it: connections, denials and notices.
package netservice

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/internal/inspection"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// maxOwners bounds the processes that a Service remembers.
const maxOwners = 4096

// A Service is the network of one sandbox, for one command or for all commands of a
// parked sandbox.
type Service struct {
	config network.Config
	ports  *network.Ports

	mu      sync.Mutex
	made    *network.Running
	records []*Record       // of the commands that run
	owners  map[int]*Record // by process that made a connection
	last    *Record         // of the command that ended last
	// open are the connections that have not ended. changed, if not nil, is closed when
	// one ends or its owner is known.
	open    map[*tracked]struct{}
	changed chan struct{}
}

// New binds the ports that the plan publishes. It returns nil if the launch needs no
// network. The inspector ends the TLS that rules are about; nil if none are.
func New(p *plan.Plan, l *backend.Launch, inspector inspection.Inspector) (*Service, error) {
	if !l.Network {
		return nil, nil
	}
	ports, err := network.Bind(&p.Network)
	if err != nil {
		return nil, fmt.Errorf("cloche: %w", err)
	}
	s := &Service{ports: ports, owners: map[int]*Record{}, open: map[*tracked]struct{}{}}
	s.config = network.Config{
		Network: &p.Network, Ports: ports, Notice: s.notice,
		Gate: egress.Config{Connection: s.connection, Begun: s.begin, Denied: s.deny, Inspector: inspector},
	}
	if p.Asks {
		s.config.Gate.Given, s.config.Gate.Ask = s.given, s.ask
	}
	return s, nil
}

// Maker returns the function that supervise calls with the sandbox's network namespace.
func (s *Service) Maker() supervise.MakeNetwork {
	if s == nil {
		return nil
	}
	return s.make
}

func (s *Service) make(netns *os.File) (io.Closer, error) {
	running, err := network.Start(netns, s.config)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = running
	return running, nil
}

// Close ends the network, even if it was never made.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	running := s.made
	s.mu.Unlock()
	if running != nil {
		_ = running.Close() // nothing uses it any more
		return
	}
	_ = s.ports.Close()
}

// Unused returns a function for a wrapped command that did not run: it releases the
// command's resources and records why.
func (s *Service) Unused(record func(error)) func(error) {
	if s == nil {
		return nil
	}
	return func(err error) {
		s.Close()
		if err != nil {
			record(err)
		}
	}
}

// Notices returns a notice with the chosen port for each published port that the plan
// leaves open.
func (s *Service) Notices(p *plan.Plan) (notices []plan.Notice) {
	if s == nil {
		return nil
	}
	for i, port := range s.ports.Published() {
		if p.Network.Publish[i].Host == 0 {
			notices = append(notices, plan.Notice{Kind: plan.NoticePublished, Origin: port.Origin,
				Text: fmt.Sprintf("%s port %d of %s leads to port %d inside", port.Protocol, port.Host, port.Address, port.Inside)})
		}
	}
	return notices
}

// Join begins the record of a command. a, unless nil, asks a person about the command's
// denials.
func (s *Service) Join(run *runlog.Run, a Asker) *Record {
	if s == nil {
		return nil
	}
	r := &Record{run: run, asker: a, begun: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	return r
}

// Leave ends the record of a command, and ends the command's connections.
func (s *Service) Leave(r *Record) {
	if s == nil || r == nil {
		return
	}
	s.ports.Settle()
	s.settle(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(o *Record) bool { return o == r })
	s.last = r
}

// find returns the record of the command that a process belongs to, or nil. The processes
// of a command that is just starting are not known yet: if there is exactly one such
// command, an unknown process is taken as its own.
func (s *Service) find(pid int) *Record {
	if pid == 0 {
		return nil
	}
	var starting []*Record
	for _, r := range s.records {
		yes, known := r.belongs(pid)
		switch {
		case yes:
			return r
		case !known:
			starting = append(starting, r)
		}
	}
	if len(starting) == 1 {
		return starting[0]
	}
	return nil
}

// of returns the record of the command that a process belongs to. If that is not known,
// it returns the records of all commands that ran at the time.
func (s *Service) of(pid int, at time.Time) []*Record {
	if r := s.owners[pid]; r != nil {
		return []*Record{r}
	}
	if r := s.find(pid); r != nil {
		return []*Record{r}
	}
	return s.running(at)
}

// running returns the records of the commands that ran at the time and still run. If
// there are none, it returns the record of the command that ended last.
func (s *Service) running(at time.Time) []*Record {
	var list []*Record
	for _, r := range s.records {
		if !r.begun.After(at) {
			list = append(list, r)
		}
	}
	if len(list) == 0 && s.last != nil {
		list = append(list, s.last)
	}
	return list
}

// connection adds a connection that was not tracked.
func (s *Service) connection(c plan.Connection) {
	s.mu.Lock()
	records := s.of(c.Pid, c.Start)
	s.mu.Unlock()
	for _, r := range records {
		r.add(c)
	}
}

func (s *Service) deny(d plan.Denial) {
	s.mu.Lock()
	records := s.of(d.Pid, time.Now())
	s.mu.Unlock()
	for _, r := range records {
		r.deny(d)
	}
}

// Published returns the ports of the host that lead inside.
func (s *Service) Published() []plan.Port {
	if s == nil {
		return nil
	}
	return s.ports.Published()
}

// Unpublish releases the host's ports before the network ends.
func (s *Service) Unpublish() {
	if s != nil {
		s.ports.Unpublish()
	}
}

// notice adds a notice to all running commands.
func (s *Service) notice(text string) {
	s.mu.Lock()
	records := s.running(time.Now())
	s.mu.Unlock()
	for _, r := range records {
		r.note(text)
	}
}

// An Asker asks a person about the denials of one command.
type Asker interface {
	// GivenHosts returns the rules with earlier grants, or nil if there are none, and
	// whether a person may be asked for more.
	GivenHosts(plan.Denial) (rules *judge.Network, ask bool)
	// AskHost waits for a decision. It returns the rules with all grants, or nil if the
	// answer is no.
	AskHost(context.Context, plan.Denial) *judge.Network
	// NotGiven removes the denials for which access was granted since.
	NotGiven([]plan.Denial) []plan.Denial
}

// askerOf returns the asker of the command to which the process of a denied connection
// belongs, or, if that is not known, of the only running command.
func (s *Service) askerOf(d *plan.Denial) Asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.owners[d.Pid]
	if r == nil {
		r = s.find(d.Pid)
	}
	switch {
	case r == nil && len(s.records) == 1:
		r = s.records[0]
	case r == nil || !slices.Contains(s.records, r): // the command has ended
		return nil
	}
	return r.asker
}

func (s *Service) given(d plan.Denial) (rules *judge.Network, ask bool) {
	if a := s.askerOf(&d); a != nil {
		return a.GivenHosts(d)
	}
	return nil, false
}

func (s *Service) ask(ctx context.Context, d plan.Denial) *judge.Network {
	if a := s.askerOf(&d); a != nil {
		return a.AskHost(ctx, d)
	}
	return nil
}

// maxConnections bounds the connections that are kept for one command.
const maxConnections = 10000

// A Record has the connections, denials and notices of one command. run gets a line for
// each connection.
type Record struct {
	run   *runlog.Run
	asker Asker // optional
	begun time.Time

	mu          sync.Mutex
	process     *supervise.Process // nil until it is started
	connections []plan.Connection
	denied      denials.Log
	notes       []string
}

// belongs reports whether a process belongs to the command. known is false while the
// command is starting.
func (r *Record) belongs(pid int) (yes, known bool) {
	r.mu.Lock()
	p := r.process
	r.mu.Unlock()
	if p == nil {
		return false, false
	}
	return p.Owns(pid), true
}

// Started sets the process of the command.
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

// DeniedSoFar returns the denials so far.
func (r *Record) DeniedSoFar() []plan.Denial {
	if r == nil {
		return nil
	}
	list, _ := r.denied.All()
	return list
}

// A Summary is the content of a Record.
type Summary struct {
	Connections []plan.Connection
	Denied      []plan.Denial
	DeniedMore  int
	Notices     []plan.Notice
}

// Summary returns everything that was recorded.
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

// maxNotices bounds the notices of one command.
const maxNotices = 10

func (r *Record) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notes) < maxNotices && !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}
