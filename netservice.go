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
	// open are the connections that have not ended; changed is closed when one has,
	// or it is known whose it is, if somebody waits.
	open    map[*tracked]struct{}
	changed chan struct{}
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
	s := &netService{ports: ports, owners: map[int]*netRecord{}, open: map[*tracked]struct{}{}}
	s.config = network.Config{
		Network: &p.Network, Ports: ports,
		Connection: s.connection, Begun: s.begin, Denied: s.deny, Notice: s.notice,
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

// leave ends the record of a command, and its connections.
func (s *netService) leave(r *netRecord) {
	if s == nil || r == nil {
		return
	}
	s.ports.Settle()
	s.settle(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(o *netRecord) bool { return o == r })
	s.last = r
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

// connection takes the record of what is over at once, and was not followed.
func (s *netService) connection(c plan.Connection) {
	s.mu.Lock()
	records := s.of(c.Pid, c.Start)
	s.mu.Unlock()
	for _, r := range records {
		r.add(c)
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
