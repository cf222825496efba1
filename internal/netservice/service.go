// Package netservice serves the network of a sandbox and keeps, for each command in it, what
// is on record: connections, refusals and notices.
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
	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// maxOwners bounds the processes that a sandbox's network remembers.
const maxOwners = 4096

// A Service is the network of one sandbox, which this process serves: of a
// command, or of all commands in a parked sandbox.
type Service struct {
	config network.Config
	ports  *network.Ports

	mu      sync.Mutex
	made    *network.Running
	records []*Record       // of the commands that run
	owners  map[int]*Record // by the processes that made connections
	last    *Record         // of the command that ended last
	// open are the connections that have not ended; changed is closed when one has,
	// or it is known whose it is, if somebody waits.
	open    map[*tracked]struct{}
	changed chan struct{}
}

// New takes the ports that the plan publishes. It returns nil where the
// launch needs no network made.
func New(p *plan.Plan, l *backend.Launch) (*Service, error) {
	if !l.Network {
		return nil, nil
	}
	ports, err := network.Bind(&p.Network)
	if err != nil {
		return nil, fmt.Errorf("cloche: %w", err)
	}
	s := &Service{ports: ports, owners: map[int]*Record{}, open: map[*tracked]struct{}{}}
	s.config = network.Config{
		Network: &p.Network, Ports: ports,
		Connection: s.connection, Begun: s.begin, Denied: s.deny, Notice: s.notice,
	}
	if p.Asks {
		s.config.Given, s.config.Ask = s.given, s.ask
	}
	return s, nil
}

// Maker is what supervise calls with the namespace.
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

// Close ends the network, also one that was never made.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	running := s.made
	s.mu.Unlock()
	if running != nil {
		_ = running.Close() // nothing is left that would use it
		return
	}
	_ = s.ports.Close()
}

// Unused gives back what the network of a wrapped command would have used, and
// records why there was none.
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

// Notices say which ports were taken where the policy leaves the choice.
func (s *Service) Notices(p *plan.Plan) {
	if s == nil {
		return
	}
	for i, port := range s.ports.Published() {
		if p.Network.Publish[i].Host == 0 {
			p.Notices = append(p.Notices, plan.Notice{Kind: plan.NoticePublished, Origin: port.Origin,
				Text: fmt.Sprintf("%s port %d of %s leads to port %d inside", port.Protocol, port.Host, port.Address, port.Inside)})
		}
	}
}

// Join begins the record of a command; a, unless nil, asks about what is refused to it.
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

// Leave ends the record of a command, and its connections.
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

// find returns the record of the command that a process belongs to, or nil. One
// that is just being started is not told apart by its processes yet.
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

// of returns the records that something of a process belongs to: that of the
// command whose process it is, or else those of all that ran.
func (s *Service) of(pid int, at time.Time) []*Record {
	if r := s.owners[pid]; r != nil {
		return []*Record{r}
	}
	if r := s.find(pid); r != nil {
		return []*Record{r}
	}
	return s.running(at)
}

// running are the records of the commands that ran at a time and still do, or else
// of the one that ended last.
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

// connection takes the record of what is over at once, and was not followed.
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

// Published are the ports of the host that lead inside.
func (s *Service) Published() []plan.Port {
	if s == nil {
		return nil
	}
	return s.ports.Published()
}

// Unpublish gives the host's ports back before the network ends.
func (s *Service) Unpublish() {
	if s != nil {
		s.ports.Unpublish()
	}
}

// notice tells all commands that run something about their network.
func (s *Service) notice(text string) {
	s.mu.Lock()
	records := s.running(time.Now())
	s.mu.Unlock()
	for _, r := range records {
		r.note(text)
	}
}

// An Asker asks a person about what is refused to one command.
type Asker interface {
	// GivenHosts are the rules with what was given before, nil if nothing was, and
	// whether somebody may be asked for more.
	GivenHosts(plan.Denial) (rules *plan.NetJudge, ask bool)
	// AskHost waits for a decision. It returns the rules with all that was given; nil is
	// no.
	AskHost(context.Context, plan.Denial) *plan.NetJudge
	// NotGiven leaves out the refusals of what was given since.
	NotGiven([]plan.Denial) []plan.Denial
}

// askerOf finds who asks for the process of a refused connection: for the command
// that it belongs to, or the only one that runs.
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
	case r == nil || !slices.Contains(s.records, r): // it has ended
		return nil
	}
	return r.asker
}

func (s *Service) given(d plan.Denial) (rules *plan.NetJudge, ask bool) {
	if a := s.askerOf(&d); a != nil {
		return a.GivenHosts(d)
	}
	return nil, false
}

func (s *Service) ask(ctx context.Context, d plan.Denial) *plan.NetJudge {
	if a := s.askerOf(&d); a != nil {
		return a.AskHost(ctx, d)
	}
	return nil
}
