// Package testlog is an audit log in memory, for tests.
package testlog

import (
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/audit"
)

// A Memory is a sink that keeps events in memory. The zero value is ready for use.
type Memory struct {
	mu     sync.Mutex
	events []audit.Event
}

// Record keeps the event.
func (l *Memory) Record(e audit.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	return nil
}

// Events returns what was kept so far, oldest first.
func (l *Memory) Events() []audit.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}
