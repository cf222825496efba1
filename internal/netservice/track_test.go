package netservice

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/plan"
)

// tracking is a service with commands that run, none of whose processes are known.
func tracking(n int) (*Service, []*Record) {
	s := &Service{ports: &network.Ports{}, owners: map[int]*Record{}, open: map[*tracked]struct{}{}}
	var records []*Record
	for range n {
		records = append(records, s.Join(nil, nil))
	}
	return s, records
}

func (r *Record) ports() (list []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.connections {
		list = append(list, c.Port)
	}
	return list
}

// N3: the end of a command waits for the record of a connection whose owner is
// still being looked for, and ends one that is still open.
func TestLeaveWaitsForOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, records := tracking(1)
		ended := make(chan struct{})
		c := s.begin(func() { close(ended) })
		go func() {
			time.Sleep(time.Second) // of the bubble's clock
			c.Owned(0)
			<-ended
			time.Sleep(time.Second) // of the bubble's clock
			c.Ended(plan.Connection{Port: 1})
		}()
		s.Leave(records[0])
		if got := records[0].ports(); !slices.Equal(got, []int{1}) {
			t.Errorf("on record is %v", got)
		}
	})
}

// N3: what may be another command's is waited for, but not ended; what began after
// the command ended is not waited for.
func TestLeaveSparesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, records := tracking(2)
		shared := s.begin(func() { t.Error("a connection of another command was ended") })
		shared.Owned(0)
		go func() {
			time.Sleep(sharedWords / 2) // of the bubble's clock
			s.begin(func() { t.Error("a new connection was ended") }).Owned(0)
			shared.Ended(plan.Connection{Port: 1})
		}()
		s.Leave(records[0])
		for i, r := range records {
			if got := r.ports(); !slices.Equal(got, []int{1}) {
				t.Errorf("on record of command %d is %v", i, got)
			}
		}
		lasting := s.begin(func() { t.Error("a connection of nobody in particular was ended") })
		lasting.Owned(0)
		begun := time.Now()
		s.Leave(s.Join(nil, nil))
		if took := time.Since(begun); took != 0 {
			t.Errorf("a command waited %v for a connection of before it began", took)
		}
	})
}

// N3: a connection that cannot be ended does not keep the command.
func TestLeaveIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, records := tracking(1)
		s.begin(func() {}).Owned(0)
		begun := time.Now()
		s.Leave(records[0])
		if took := time.Since(begun); took != settleLimit {
			t.Errorf("it was waited for %v", took)
		}
	})
}
