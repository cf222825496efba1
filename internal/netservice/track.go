package netservice

import (
	"slices"
	"time"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
)

// A command's end waits for the records of its connections, because in a parked sandbox
// the network continues for other commands.
const (
	// sharedWords bounds the wait for a connection that may also belong to another command,
	// because its process was not found.
	sharedWords = 200 * time.Millisecond
	// settleLimit bounds the wait for all connections. It is longer than any step during
	// which a connection cannot be ended.
	settleLimit = 15 * time.Second
)

// A tracked is a connection that has not ended. The lock of the service guards its
// fields.
type tracked struct {
	service *Service
	begun   time.Time
	end     func()
	ending  bool
	// known says that whose does not change any more.
	known bool
	whose []*Record
}

// begin starts to track a connection. When the connection ends, its process and its
// command may be gone.
func (s *Service) begin(end func()) egress.Track {
	t := &tracked{service: s, begun: time.Now(), end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[t] = struct{}{}
	return t
}

// Owned implements egress.Track. If the process was not found, the connection counts for
// all running commands.
func (t *tracked) Owned(pid int) {
	s := t.service
	s.mu.Lock()
	defer s.mu.Unlock()
	t.known, t.whose = true, s.running(t.begun)
	if r := s.find(pid); r != nil {
		t.whose = []*Record{r}
		if len(s.owners) >= maxOwners {
			clear(s.owners)
		}
		s.owners[pid] = r
	}
	s.signalChange()
}

// Ended implements egress.Track.
func (t *tracked) Ended(c plan.Connection) {
	s := t.service
	s.mu.Lock()
	if !t.known {
		t.known, t.whose = true, s.of(c.Pid, t.begun)
	}
	s.mu.Unlock()
	for _, r := range t.whose {
		r.add(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t)
	s.signalChange()
}

// signalChange wakes the calls of settle.
func (s *Service) signalChange() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// settle ends the connections of a command that has ended, and returns when they are
// recorded.
func (s *Service) settle(r *Record) {
	over := time.Now()
	for {
		wait, changed := s.endOpen(r, over)
		if wait <= 0 {
			return
		}
		select {
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// mayBe reports whether the connection may belong to the command of r, which ended at
// over.
func (t *tracked) mayBe(r *Record, over time.Time) bool {
	if t.known {
		return slices.Contains(t.whose, r)
	}
	return !t.begun.Before(r.begun) && !t.begun.After(over)
}

// endOpen ends the connections that belong only to the command. It returns how long to
// wait for a change; 0 means that nothing is open or the time is up.
func (s *Service) endOpen(r *Record, over time.Time) (wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.open {
		if !t.mayBe(r, over) {
			continue
		}
		limit := settleLimit
		switch {
		case t.known && len(t.whose) > 1:
			limit = sharedWords
		case !t.ending && (t.known || len(s.records) == 1):
			t.ending = true
			go t.end()
		}
		wait = max(wait, time.Until(over.Add(limit)))
	}
	if wait > 0 && s.changed == nil {
		s.changed = make(chan struct{})
	}
	return wait, s.changed
}
