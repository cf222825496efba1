// Package denials keeps what was refused to a command, and says it: to people in
// a few lines, to an agent as a short text.
package denials

import (
	"net/netip"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// Limit is how many different refusals a Log lists: it bounds what a command can
// make its supervisor remember.
const Limit = 1000

// A Log is the record of one command. Equal refusals are one entry with their
// count; what is over the limit is counted. Its zero value is ready, and it is
// safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	list  []plan.Denial
	index map[key]int
	more  int
}

// A key is what equal refusals have in common: everything but the process.
type key struct {
	op            plan.Op
	path, host    string
	addr          netip.Addr
	port          int
	protocol      string
	method        string
	rule, subject string
}

func keyOf(d *plan.Denial) key {
	return key{d.Op, d.Path, d.Host, d.Addr, d.Port, d.Protocol, d.Method, d.Rule, d.Subject}
}

// Add records a refusal. Its Count is how often it happened, at least once.
func (l *Log) Add(d plan.Denial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.Count = max(1, d.Count)
	k := keyOf(&d)
	if i, ok := l.index[k]; ok {
		l.list[i].Count += d.Count
		return
	}
	if len(l.list) >= Limit {
		l.more += d.Count
		return
	}
	if l.index == nil {
		l.index = map[key]int{}
	}
	if d.Time.IsZero() {
		d.Time = time.Now().UTC()
	}
	l.index[k] = len(l.list)
	l.list = append(l.list, d)
}

// Wants reports whether the refusal would be a new entry: only then is it worth
// finding out more about the process.
func (l *Log) Wants(d plan.Denial) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.index[keyOf(&d)]
	return !known && len(l.list) < Limit
}

// All returns the entries in the order in which they first happened, and how many
// refusals there were that are in none of them.
func (l *Log) All() (list []plan.Denial, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]plan.Denial(nil), l.list...), l.more
}
