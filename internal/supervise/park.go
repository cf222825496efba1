package supervise

import "sync"

// A Parked is a sandbox that waits for commands. It exists until Close was called and the last
// run in it has ended.
type Parked struct {
	parked // the parts that depend on the platform

	mu     sync.Mutex
	runs   int
	closed bool
	over   bool // the sandbox has been ended
	done   chan struct{}
}

// Done is closed when the sandbox has ended, so that what serves it outside can end too.
func (p *Parked) Done() <-chan struct{} { return p.done }

// Acquire reserves the sandbox for one run. [Start] or the end of the run gives it back. It
// returns false if the sandbox is closed or has ended.
func (p *Parked) Acquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ended() {
		return false
	}
	p.runs++
	return true
}

// Release gives back what Acquire reserved, for a run that is not started after all. It does
// nothing if p is nil.
func (p *Parked) Release() { p.releaseAfter(func() {}) }

// releaseAfter is Release for a run that has ended. If the sandbox ends with this run, last is
// called first, to reap the run's process: the first process of a pid namespace does not end
// before all others in it are reaped.
func (p *Parked) releaseAfter(last func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs--
	if p.closed && p.runs == 0 {
		last()
	}
	p.endIfUnused()
}

// Close closes the sandbox. It ends with the last run in it.
func (p *Parked) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.retire()
		p.endIfUnused()
	}
}

func (p *Parked) endIfUnused() {
	if p.closed && p.runs == 0 && !p.over {
		p.end()
		p.over = true
		close(p.done)
	}
}
