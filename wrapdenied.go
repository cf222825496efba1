package cloche

import (
	"os/exec"
	"time"
	"weak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/plan"
)

// A wrapRecord is what was refused to a wrapped command.
type wrapRecord struct {
	plan   *plan.Plan
	run    *runlog.Run
	done   chan struct{} // closed when the rest is final
	denied []Denial
	more   int
}

// newWrapRecord is the record of a launch; one that nobody judges has nothing on
// record.
func newWrapRecord(p *plan.Plan, l *backend.Launch, run *runlog.Run) *wrapRecord {
	r := &wrapRecord{plan: p, run: run, done: make(chan struct{})}
	if l.Guard == nil {
		close(r.done)
	}
	return r
}

func (r *wrapRecord) end(denied []Denial, more int) {
	redactDenied(denied)
	placeDenied(denied, r.plan)
	r.denied, r.more = denied, more
	r.run.WrappedRefusals(denied, more)
	close(r.done)
}

// wrapEnd is how long Denied waits for the last processes of a command that has
// ended.
const wrapEnd = 2 * time.Second

// Denied returns what was refused to the files of a command that [Session.Wrap]
// rewrote, as [Result.Denied] has it of others, and how many refusals more there
// were. It is for a command that has been waited for; of one that still runs, it
// returns nothing.
func (s *Session) Denied(c *exec.Cmd) (denied []Denial, more int) {
	s.mu.Lock()
	r := s.wrapped[weak.Make(c)]
	s.mu.Unlock()
	if r == nil || c.ProcessState == nil {
		return nil, 0
	}
	select {
	case <-r.done:
		return append([]Denial(nil), r.denied...), r.more
	case <-time.After(wrapEnd):
		return nil, 0
	}
}
