package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/backend"
)

// spareTime is how long a spare waits for its command before it is let go.
const spareTime = time.Minute

// spares keeps one init of a parked sandbox ready: the next one is made when a
// command has run, so that a command finds its namespaces, its mounts and its filter
// there. It serves one command, like every other: nothing of an earlier one is in
// it. Without it a command in a warm session takes 2.7 times as long as without a
// sandbox, instead of 1.6 times.
type spares struct {
	mu    sync.Mutex
	off   bool
	ready *waiting
	idle  *time.Timer
	// making is closed when the one that is being made is there; claimed: somebody
	// waits for that.
	making  chan struct{}
	claimed bool
	// hurry is for how many commands more the next spare is made at once.
	hurry int
}

// take returns the spare if it fits, waiting for one that is being made unless
// somebody else does; or nil.
func (s *spares) take(ctx context.Context, l *backend.Launch, in inherited) *waiting {
	s.mu.Lock()
	s.hurry = max(0, s.hurry-1)
	if s.ready == nil {
		s.hurry = hurriedCommands
	}
	if making := s.making; s.ready == nil && making != nil && !s.claimed {
		s.claimed = true
		s.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.claimed = false
	}
	w := s.remove()
	s.mu.Unlock()
	if w != nil && !w.fits(l, in) {
		w.discard()
		return nil
	}
	return w
}

// remove takes the spare out. The lock is held.
func (s *spares) remove() *waiting {
	w := s.ready
	s.ready = nil
	if s.idle != nil {
		s.idle.Stop()
	}
	return w
}

// hurriedCommands is how many commands get their spare made beside them after one
// that found none.
const hurriedCommands = 16

// refillLater makes a spare when the command has ended, which the caller tells: both
// want the same processors, and to make one takes longer than a short command. Where
// commands follow each other so quickly, or run beside each other, that one finds
// none, it is made at once.
func (s *spares) refillLater(p *Parked, l *backend.Launch) (ended func()) {
	s.mu.Lock()
	hurry := s.hurry > 0
	s.mu.Unlock()
	if hurry {
		s.refill(p, l)
	}
	return func() { s.refill(p, l) }
}

// refill makes a spare in the background, unless there is one. A launch that
// fails is not told of: the next command makes its own, and tells.
func (s *spares) refill(p *Parked, l *backend.Launch) {
	making := s.begin()
	if making == nil {
		return
	}
	if !p.Acquire() {
		s.put(nil)
		close(making)
		return
	}
	go func() {
		defer p.Release()
		ctx, cancel := context.WithTimeout(context.Background(), parkTime)
		defer cancel()
		s.put(p.awaitSame(ctx, l))
		close(making)
	}()
}

// sameTries is how often an init is made again because what it inherits was changed
// meanwhile.
const sameTries = 4

// awaitSame makes an init of which it is known what it has inherited, or returns
// nil.
func (p *Parked) awaitSame(ctx context.Context, l *backend.Launch) *waiting {
	for range sameTries {
		in := whatIsInherited()
		w, err := p.await(ctx, l, in)
		if err != nil {
			return nil
		}
		if whatIsInherited() == in {
			return w
		}
		w.discard() // it may have inherited either
	}
	return nil
}

// begin returns what to close when a spare has been made, or nil if none is to be.
func (s *spares) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off || s.ready != nil || s.making != nil {
		return nil
	}
	s.making = make(chan struct{})
	return s.making
}

// put keeps the spare for a while.
func (s *spares) put(w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = nil
	switch {
	case w == nil:
	case s.off:
		w.discard()
	default:
		s.ready = w
		s.idle = time.AfterFunc(spareTime, func() { s.expire(w) })
	}
}

func (s *spares) expire(w *waiting) {
	s.mu.Lock()
	expired := s.ready == w
	if expired {
		s.ready = nil
	}
	s.mu.Unlock()
	if expired {
		w.discard()
	}
}

// end lets the spare go, for good.
func (s *spares) end() {
	s.mu.Lock()
	s.off = true
	w := s.remove()
	s.mu.Unlock()
	if w != nil {
		w.discard()
	}
}
