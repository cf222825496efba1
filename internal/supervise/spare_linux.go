package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/backend"
)

// spareTime is how long a spare init waits for a command before it is ended.
const spareTime = time.Minute

// spares keeps one waiting init of a parked sandbox ready, so that the next command finds its
// namespaces, its mounts and its filter made. A new one is made after each command. Each
// serves only one command: nothing of an earlier command is in it. Without spares, a command
// in a warm session takes 2.7 times as long as without a sandbox, instead of 1.6 times.
type spares struct {
	mu    sync.Mutex
	off   bool
	ready *waiting
	idle  *time.Timer
	// making is closed when the spare that is being made is ready. claimed: a command waits
	// for it.
	making  chan struct{}
	claimed bool
	// hurry is for how many further commands the next spare is made at once.
	hurry int
}

// take returns the spare if it fits, or nil. It waits for a spare that is being made, unless
// another command waits for it already.
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

// remove takes the spare out. The caller holds the lock.
func (s *spares) remove() *waiting {
	w := s.ready
	s.ready = nil
	if s.idle != nil {
		s.idle.Stop()
	}
	return w
}

// hurriedCommands is for how many commands spares are made at once, after a command that found
// none.
const hurriedCommands = 16

// refillLater makes a spare after the command has ended, when the caller calls ended. Making
// one takes longer than a short command, and would compete with the command for the
// processors. But if commands follow each other so quickly, or run in parallel, that one found
// no spare, the next one is made at once.
func (s *spares) refillLater(p *Parked, l *backend.Launch) (ended func()) {
	s.mu.Lock()
	hurry := s.hurry > 0
	s.mu.Unlock()
	if hurry {
		s.refill(p, l)
	}
	return func() { s.refill(p, l) }
}

// refill makes a spare in the background, unless there is one. It does not report errors: the
// next command makes its own init and reports them.
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

// sameTries is how often an init is made again because the inherited properties changed
// meanwhile.
const sameTries = 4

// awaitSame makes a waiting init and knows for certain what it has inherited. It returns nil
// if that fails.
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
		w.discard() // it may have inherited the old or the new ones
	}
	return nil
}

// begin returns a channel to close when the spare is made, or nil if none should be made.
func (s *spares) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off || s.ready != nil || s.making != nil {
		return nil
	}
	s.making = make(chan struct{})
	return s.making
}

// put keeps the spare for spareTime.
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

// end discards the spare and makes no more.
func (s *spares) end() {
	s.mu.Lock()
	s.off = true
	w := s.remove()
	s.mu.Unlock()
	if w != nil {
		w.discard()
	}
}
