package cloche

import (
	"sync"

	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
)

// A basePlan is the plan of a session with no command: what Explain shows. It is
// made when it is first needed, and again when something was granted since.
type basePlan struct {
	mu     sync.Mutex
	made   bool
	grants string // what was granted when it was made
	plan   *plan.Plan
	judge  *plan.Judge // of the plan, or nil
	err    error
}

// plan returns the plan with no command, making it if need be.
func (s *Session) plan() (*plan.Plan, error) {
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	return s.planLocked()
}

func (s *Session) planLocked() (*plan.Plan, error) {
	b := &s.base
	key := s.grantKey()
	if b.made && b.grants == key {
		return b.plan, b.err
	}
	b.made, b.grants, b.plan, b.judge = true, key, nil, nil
	snap, err := s.snapshot(nil)
	if err == nil {
		b.plan, err = s.resolve(s.effective(), snap, resolve.Request{})
	}
	b.err = err
	return b.plan, b.err
}

// currentJudge is the judge of that plan.
func (s *Session) currentJudge() *plan.Judge {
	s.base.mu.Lock()
	defer s.base.mu.Unlock()
	p, _ := s.planLocked()
	if s.base.judge == nil {
		s.base.judge = p.Judge()
	}
	return s.base.judge
}
