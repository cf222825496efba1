package cloche

import (
	"os/exec"
	"slices"
	"time"
	"weak"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/netservice"
	"github.com/cloche-dev/cloche/internal/runlog"
	"github.com/cloche-dev/cloche/plan"
)

// A wrapRecord is what was refused to a wrapped command.
type wrapRecord struct {
	plan *plan.Plan
	run  *runlog.Run
	net  *netservice.Record // nil without a network that cloche serves
	done chan struct{}      // closed when the rest is final
	// denied and more are the broker's.
	denied []Denial
	more   int
}

// newWrapRecord is the record of a launch. Without a broker it has only what was refused
// to the network.
func newWrapRecord(p *plan.Plan, l *backend.Launch, run *runlog.Run, net *netservice.Record) *wrapRecord {
	r := &wrapRecord{plan: p, run: run, net: net, done: make(chan struct{})}
	if l.Guard == nil {
		close(r.done)
	}
	return r
}

func (r *wrapRecord) end(denied []Denial, more int) {
	redactDenied(denied)
	placeDenied(denied, r.plan)
	r.denied, r.more = denied, more
	r.run.WrappedRefusals(r.all())
	close(r.done)
}

// all is what was refused by the broker, then by the network.
func (r *wrapRecord) all() (denied []Denial, more int) {
	net := r.net.Summary()
	redactDenied(net.Denied)
	return slices.Concat(r.denied, net.Denied), r.more + net.DeniedMore
}

// wrapEnd is how long Denied waits for the last processes of a command that has
// ended.
const wrapEnd = 2 * time.Second

// Denied returns what was refused to a command that [Session.Wrap] rewrote, as
// [Result.Denied] has it of others, and how many refusals more there were. It is for a
// command that has been waited for; of one that still runs, it returns nothing.
func (s *Session) Denied(c *exec.Cmd) (denied []Denial, more int) {
	s.mu.Lock()
	r := s.wrapped[weak.Make(c)]
	s.mu.Unlock()
	if r == nil || c.ProcessState == nil {
		return nil, 0
	}
	select {
	case <-r.done:
		return r.all()
	case <-time.After(wrapEnd):
		return nil, 0
	}
}
