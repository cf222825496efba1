package audit

import (
	"sync"
	"time"
)

// A Sink keeps events. Record may be called by many goroutines at once.
type Sink interface {
	Record(Event) error
}

// Nop keeps nothing.
type Nop struct{}

// Record does nothing.
func (Nop) Record(Event) error { return nil }

// Memory keeps events in memory, for tests and for programs that show them. The
// zero value is ready for use.
type Memory struct {
	mu     sync.Mutex
	events []Event
}

// Record keeps the event as the log would, but without a chain.
func (m *Memory) Record(e Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e = e.prepare(time.Now)
	e.Seq = uint64(len(m.events)) + 1
	m.events = append(m.events, e)
	return nil
}

// Events returns what was kept so far, oldest first.
func (m *Memory) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Event(nil), m.events...)
}
