package supervise

import "sync"

// A Parked is a sandbox that waits for commands. It stays as long as somebody
// holds it: the one who parked it until Close, and each run in it until its end.
type Parked struct {
	parked // what the platform keeps

	mu     sync.Mutex
	runs   int
	closed bool
	over   bool // it has been let go
	done   chan struct{}
}

// Done is closed when the sandbox is let go: what serves it outside ends then.
func (p *Parked) Done() <-chan struct{} { return p.done }

// Acquire takes hold of the sandbox for one run, which [Start] or the end of the
// run gives back. It is false where the sandbox is closed or has ended.
func (p *Parked) Acquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ended() {
		return false
	}
	p.runs++
	return true
}

// Release gives back what Acquire took, for a run that is not started after all.
// It does nothing to a sandbox that is nil.
func (p *Parked) Release() { p.releaseAfter(func() {}) }

// releaseAfter is Release for a run whose process may have to be reaped by last,
// where the sandbox ends with the run: its first process does not end before every
// other one of its namespace is reaped.
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

// Close lets the sandbox go: it ends with the last run in it.
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
