package cloche

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/internal/supervise"
	"github.com/cloche-dev/cloche/plan"
)

// maxOwners bounds the processes that a sandbox's network remembers.
const maxOwners = 4096

// A netService is the network of one sandbox, which this process serves: of a
// command, or of all commands in a parked sandbox.
type netService struct {
	config network.Config
	ports  *network.Ports

	mu      sync.Mutex
	made    *network.Running
	records []*netRecord       // of the commands that run
	owners  map[int]*netRecord // by the processes that made connections
	last    *netRecord         // of the command that ended last
	// open are the records that wait for the end of a connection, by its process.
	open map[int][][]*netRecord
}

// newNetService takes the ports that the plan publishes. It returns nil where the
// launch needs no network made.
func newNetService(p *plan.Plan, l *backend.Launch) (*netService, error) {
	if !l.Network {
		return nil, nil
	}
	ports, err := network.Bind(&p.Network)
	if err != nil {
		return nil, fmt.Errorf("cloche: %w", err)
	}
	s := &netService{ports: ports, owners: map[int]*netRecord{}, open: map[int][][]*netRecord{}}
	s.config = network.Config{
		Network: &p.Network, Ports: ports, Avoid: []string{p.Workspace},
		Connection: s.connection, Denied: s.deny, Owned: s.owned, Notice: s.notice,
	}
	if p.Asks {
		s.config.Given, s.config.Ask = s.given, s.ask
	}
	return s, nil
}

// maker is what supervise calls with the namespace.
func (s *netService) maker() supervise.MakeNetwork {
	if s == nil {
		return nil
	}
	return s.make
}

func (s *netService) make(netns *os.File) (io.Closer, error) {
	running, err := network.Start(netns, s.config)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = running
	return running, nil
}

// close ends the network, also one that was never made.
func (s *netService) close() {
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

// unused gives back what the network of a wrapped command would have used, and
// records why there was none.
func (s *netService) unused(run *auditRun) func(error) {
	if s == nil {
		return nil
	}
	return func(err error) {
		s.close()
		if err != nil {
			run.refused(err)
		}
	}
}

// notices say which ports were taken where the policy leaves the choice.
func (s *netService) notices(p *plan.Plan) {
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

// join begins the record of a command; a asks about what is refused to it.
func (s *netService) join(run *auditRun, a *asker) *netRecord {
	if s == nil {
		return nil
	}
	r := &netRecord{run: run, asker: a, begun: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	return r
}

// leave ends the record of a command. What is told later of its connections goes
// to the log alone.
func (s *netService) leave(r *netRecord) {
	if s == nil || r == nil {
		return
	}
	r.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(o *netRecord) bool { return o == r })
	s.last = r
}

// owned notes whose connection was just made: the process may be gone when it
// ends. One of nobody who could be found counts for all that run. Datagrams have
// no end that could be waited for.
func (s *netService) owned(protocol string, pid int, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	whose := s.running(begun)
	if r := s.find(pid); r != nil {
		whose = []*netRecord{r}
		if len(s.owners) >= maxOwners {
			clear(s.owners)
		}
		s.owners[pid] = r
	}
	if protocol != "tcp" {
		return
	}
	s.open[pid] = append(s.open[pid], whose)
	for _, r := range whose {
		r.begin()
	}
}

// find returns the record of the command that a process belongs to, or nil. One
// that is just being started is not told apart by its processes yet.
func (s *netService) find(pid int) *netRecord {
	if pid == 0 {
		return nil
	}
	var starting []*netRecord
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
func (s *netService) of(pid int, at time.Time) []*netRecord {
	if r := s.owners[pid]; r != nil {
		return []*netRecord{r}
	}
	if r := s.find(pid); r != nil {
		return []*netRecord{r}
	}
	return s.running(at)
}

// running are the records of the commands that ran at a time and still do, or else
// of the one that ended last.
func (s *netService) running(at time.Time) []*netRecord {
	var list []*netRecord
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

// ended returns the records that the end of a connection belongs to; waited says
// that they were told of its beginning.
func (s *netService) ended(c *plan.Connection) (records []*netRecord, waited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[c.Pid]; c.Protocol == "tcp" && len(open) > 0 {
		if records, s.open[c.Pid] = open[0], open[1:]; len(open) == 1 {
			delete(s.open, c.Pid)
		}
		waited = true
	} else {
		records = s.of(c.Pid, c.Start)
	}
	return records, waited
}

func (s *netService) connection(c plan.Connection) {
	records, waited := s.ended(&c)
	for _, r := range records {
		r.add(c, waited)
	}
}

func (s *netService) deny(d plan.Denial) {
	s.mu.Lock()
	records := s.of(d.Pid, time.Now())
	s.mu.Unlock()
	for _, r := range records {
		r.deny(d)
	}
}

// takeNetwork takes what the command's network needs of the host. A command in a
// parked sandbox has that sandbox's network.
func (c *Cmd) takeNetwork() (err error) {
	if c.park != nil {
		c.net = c.park.net
	} else if c.net, err = newNetService(c.plan, c.launch); err != nil {
		return err
	}
	c.net.notices(c.plan)
	c.published = c.net.publishedPorts()
	return nil
}

// leaveNetwork ends the record, and the network if it was the command's own.
func (c *Cmd) leaveNetwork() {
	if c.park == nil {
		c.net.close()
	}
	c.net.leave(c.netRecord)
	c.net = nil
}
