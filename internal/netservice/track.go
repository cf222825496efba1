package netservice

import (
	"slices"
	"time"

	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/plan"
)

// The end of a command waits for the records of its connections; in a parked
// sandbox the network goes on for other commands.
const (
	// sharedWords is how long it waits for a connection that may be another
	// command's just as well, because nobody could be found who has it.
	sharedWords = 200 * time.Millisecond
	// settleLimit bounds the wait for all of them. It is more than any step takes
	// that a connection has to come through before it can be ended.
	settleLimit = 15 * time.Second
)

// A tracked is a connection that has not ended. Its fields are guarded by the
// service.
type tracked struct {
	service *Service
	begun   time.Time
	end     func()
	ending  bool
	// known: it was found out whose it is.
	known bool
	whose []*Record
}

// begin follows a connection: the process that it is of may be gone when it ends,
// and the command, too.
func (s *Service) begin(end func()) network.Track {
	t := &tracked{service: s, begun: time.Now(), end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[t] = struct{}{}
	return t
}

// Owned implements network.Track. A connection of nobody who could be found counts
// for all that run.
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
	s.tellChange()
}

// Ended implements network.Track.
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
	s.tellChange()
}

// tellChange wakes whoever waits for a connection.
func (s *Service) tellChange() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// settle ends the connections of a command that has ended, and returns when they
// are on record.
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

// mayBe reports whether the connection may be of a command that has ended.
func (t *tracked) mayBe(r *Record, over time.Time) bool {
	if t.known {
		return slices.Contains(t.whose, r)
	}
	return !t.begun.Before(r.begun) && !t.begun.After(over)
}

// endOpen ends connections that are the command's and nobody else's. It returns how
// long a change is to be waited for, which is not at all if nothing is open or time
// is up.
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
