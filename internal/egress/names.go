package egress

import (
	"container/list"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAddrs bounds the addresses that are remembered for one sandbox.
	maxAddrs = 8192
	// maxNamesPerAddr bounds the names of one address; the newest are kept.
	maxNamesPerAddr = 16
	// keepName is how long a name is remembered at least. Programs keep
	// answers for longer than their time to live, some for as long as they run.
	keepName = time.Hour
	// keepNameMost is how long it is remembered at most.
	keepNameMost = 24 * time.Hour
)

// names remembers which names led to an address: a connection arrives with
// an address alone. It holds only what was answered to the sandbox itself.
type names struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]*list.Element
	used   list.List // of *named, the latest used first
}

type named struct {
	addr  netip.Addr
	names []nameEntry // newest first
}

type nameEntry struct {
	name    string
	expires time.Time
}

// remember notes that the name was answered with the addresses.
func (t *names) remember(name string, addrs []netip.Addr, ttl time.Duration, now time.Time) {
	expires := now.Add(min(max(ttl, keepName), keepNameMost))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, addr := range addrs {
		n := t.entry(addr)
		n.names = slices.DeleteFunc(n.names, func(e nameEntry) bool { return e.name == name || e.expires.Before(now) })
		n.names = slices.Insert(n.names, 0, nameEntry{name, expires})
		n.names = n.names[:min(len(n.names), maxNamesPerAddr)]
	}
}

// entry finds or makes the entry of an address, and drops the one that has not been
// used for longest where there are too many.
func (t *names) entry(addr netip.Addr) *named {
	if e, ok := t.byAddr[addr]; ok {
		t.used.MoveToFront(e)
		return e.Value.(*named)
	}
	if t.byAddr == nil {
		t.byAddr = map[netip.Addr]*list.Element{}
	}
	if len(t.byAddr) >= maxAddrs {
		oldest := t.used.Back()
		delete(t.byAddr, t.used.Remove(oldest).(*named).addr)
	}
	n := &named{addr: addr}
	t.byAddr[addr] = t.used.PushFront(n)
	return n
}

// of returns the names that led to the address, newest first.
func (t *names) of(addr netip.Addr, now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byAddr[addr]
	if !ok {
		return nil
	}
	t.used.MoveToFront(e)
	var found []string
	for _, n := range e.Value.(*named).names {
		if n.expires.After(now) {
			found = append(found, n.name)
		}
	}
	return found
}
