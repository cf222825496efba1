package egress

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxSinkholes bounds the refused names that have an address of their own.
	maxSinkholes = 4096
	// noteAgain is how long equal look-ups count as one: a client asks for
	// A and AAAA at once.
	noteAgain = time.Second
)

// inSinkhole reports whether an address is of plan.Sinkhole, where refused names lead: a part of the benchmarking network
// (RFC 2544) that no packet is ever sent to.
func inSinkhole(addr netip.Addr) bool {
	b := addr.As16()
	return addr.Is4() && b[12] == 198 && b[13] == 19
}

// sinkholes gives each refused name an address of its own, so that a connection
// to it can be refused by name, and can succeed once the name is allowed. With
// too many names the one that was not used for longest loses its address to
// the new one; a client of the old name is then told the new one, and still
// reaches nothing that is not allowed.
type sinkholes struct {
	mu     sync.Mutex
	byName map[string]*list.Element
	byAddr map[netip.Addr]*list.Element
	used   list.List // of *sinkhole, the latest used first
}

type sinkhole struct {
	name  string
	addr  netip.Addr
	noted time.Time
}

// of returns the address of a name. It reports whether the look-up is a new one,
// which has to be recorded.
func (s *sinkholes) of(name string, now time.Time) (addr netip.Addr, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hole := s.entry(name)
	fresh = now.Sub(hole.noted) >= noteAgain
	if fresh {
		hole.noted = now
	}
	return hole.addr, fresh
}

func (s *sinkholes) entry(name string) *sinkhole {
	if e, ok := s.byName[name]; ok {
		s.used.MoveToFront(e)
		return e.Value.(*sinkhole)
	}
	if s.byName == nil {
		s.byName, s.byAddr = map[string]*list.Element{}, map[netip.Addr]*list.Element{}
	}
	hole := &sinkhole{name: name}
	if n := len(s.byName); n < maxSinkholes {
		// The first and the last address of a network are not for hosts.
		n++
		hole.addr = netip.AddrFrom4([4]byte{198, 19, byte(n >> 8), byte(n)})
	} else {
		oldest := s.used.Remove(s.used.Back()).(*sinkhole)
		delete(s.byName, oldest.name)
		hole.addr = oldest.addr
	}
	e := s.used.PushFront(hole)
	s.byName[name], s.byAddr[hole.addr] = e, e
	return hole
}

// name returns the name that an address stands for, or "".
func (s *sinkholes) name(addr netip.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byAddr[addr]
	if !ok {
		return ""
	}
	s.used.MoveToFront(e)
	return e.Value.(*sinkhole).name
}
