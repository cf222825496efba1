package egress

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/judge"
)

// parseAddr parses an IP address in the form of a URL or of a proxy's client. A zone is
// not allowed: it names an interface of the host.
func parseAddr(s string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		s = inner
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// splitHostPort splits "host", "host:port", "[v6]" and "[v6]:port". Without a port it
// returns port 0.
func splitHostPort(s string) (host string, port int, ok bool) {
	host, rest := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, false
		}
		host, rest = s[:end+1], s[end+1:]
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 {
		host, rest = s[:colon], s[colon:]
	}
	if host == "" {
		return "", 0, false
	}
	if rest == "" {
		return host, 0, true
	}
	port, ok = parsePort(strings.TrimPrefix(rest, ":"))
	return host, port, ok && rest[0] == ':'
}

func parsePort(s string) (int, bool) {
	if s == "" || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	port, err := strconv.Atoi(s)
	return port, err == nil && port >= 1 && port <= 65535
}

// hostOf normalizes the host that a client sent. It sets either name or addr.
func hostOf(s string) (name string, addr netip.Addr, ok bool) {
	if addr, ok := parseAddr(s); ok {
		return "", addr, true
	}
	if name, ok = judge.NormalName(s); !ok {
		return "", netip.Addr{}, false
	}
	return name, netip.Addr{}, true
}

const (
	// maxAddrs bounds the addresses that are remembered for one sandbox.
	maxAddrs = 8192
	// maxNamesPerAddr bounds the names of one address; the newest are kept.
	maxNamesPerAddr = 16
	// keepName is the shortest time that a name is remembered. Programs use answers longer
	// than their time to live, some for as long as they run.
	keepName = time.Hour
	// keepNameMost is the longest time that a name is remembered.
	keepNameMost = 24 * time.Hour
)

// names remembers which names led to an address, because a connection has only the
// address. It contains only names whose look-up was answered to this sandbox.
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

// remember records that the name was answered with the addresses.
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

// entry finds or makes the entry of an address. If there are too many, it drops the least
// recently used.
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

const (
	// maxSinkholes bounds the refused names that have an address of their own.
	maxSinkholes = 4096
	// noteAgain is how long equal look-ups count as one: a client asks for A and AAAA
	// at the same time.
	noteAgain = time.Second
)

// inSinkhole reports whether an address is in wellknown.Sinkhole, where refused names lead: a
// part of the benchmarking network (RFC 2544) that no packet is ever sent to.
func inSinkhole(addr netip.Addr) bool {
	b := addr.As16()
	return addr.Is4() && b[12] == 198 && b[13] == 19
}

// sinkholes gives each refused name its own address, so that a connection to it can be
// refused by name, and succeeds if the name is allowed later. If there are too many
// names, a new one takes the address of the least recently used. A denial of the old
// name then shows the new one, but nothing more can be reached.
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

// of returns the address of a name. It reports whether the look-up has to be recorded.
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

// name returns the name of an address, or "".
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

const (
	// maxLookups bounds the names whose addresses are kept.
	maxLookups = 1024
	// maxAnswers bounds the addresses of one name.
	maxAnswers = 32
	// lookupWait bounds one look-up.
	lookupWait = 10 * time.Second
	// hostTTL is the lifetime of answers of the host's resolver, which reports none.
	hostTTL = 30 * time.Second
)

// lookups caches the addresses of names while they are valid. Equal look-ups in
// progress share one: a client asks for both families at the same time.
type lookups struct {
	mu     sync.Mutex
	byName map[string]*lookup
}

type lookup struct {
	done    chan struct{}
	addrs   []netip.Addr
	expires time.Time
	err     error
}

// lookUp returns the addresses of a name, alternating the families, and how long they are
// valid. It does not check them.
func (g *Gate) lookUp(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	l, mine := g.cache.join(name, time.Now())
	if mine {
		g.resolve(l, name)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if l.err != nil {
		return nil, 0, l.err
	}
	return l.addrs, max(0, time.Until(l.expires)), nil
}

// join returns the look-up of a name. If there is none, it adds one and sets mine: the
// caller then has to resolve it.
func (c *lookups) join(name string, now time.Time) (l *lookup, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.byName[name]; ok && !l.stale(now) {
		return l, false
	}
	if c.byName == nil {
		c.byName = map[string]*lookup{}
	}
	if len(c.byName) >= maxLookups {
		c.prune(now)
	}
	l = &lookup{done: make(chan struct{})}
	c.byName[name] = l
	return l, true
}

// stale reports whether a look-up has ended and its answer is no longer valid. A failure
// is never valid.
func (l *lookup) stale(now time.Time) bool {
	select {
	case <-l.done:
		return l.err != nil || !now.Before(l.expires)
	default:
		return false
	}
}

// prune removes stale entries, or all if none is stale.
func (c *lookups) prune(now time.Time) {
	for name, l := range c.byName {
		if l.stale(now) {
			delete(c.byName, name)
		}
	}
	if len(c.byName) >= maxLookups {
		clear(c.byName)
	}
}

// resolve makes a look-up. It does not end with the client that asked first, because
// others may wait for it too.
func (g *Gate) resolve(l *lookup, name string) {
	defer close(l.done)
	if isLocalhost(name) {
		l.addrs, l.expires = loopbacks(), time.Now().Add(hostTTL)
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, lookupWait)
	defer cancel()
	found, ttl, err := g.config.Resolve(ctx, name)
	if err != nil {
		l.err = err
		return
	}
	for _, addr := range found {
		addr = addr.Unmap().WithZone("")
		if addr.IsValid() && !slices.Contains(l.addrs, addr) && len(l.addrs) < maxAnswers {
			l.addrs = append(l.addrs, addr)
		}
	}
	l.addrs = inTurn(l.addrs)
	// An answer with lifetime 0 still has to last for the next connection.
	l.expires = time.Now().Add(max(ttl, time.Second))
	if len(l.addrs) == 0 {
		l.err = &net.DNSError{Err: "the name has no address", Name: name, IsNotFound: true}
	}
}

// hostResolve asks the host's name servers and its /etc/hosts. It uses Go's resolver,
// which does not parse odd names as addresses.
func hostResolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	resolver := net.Resolver{PreferGo: true}
	// The trailing dot prevents the use of the host's search list.
	addrs, err := resolver.LookupNetIP(ctx, "ip", name+".")
	return addrs, hostTTL, err
}

// notFound reports whether a failed look-up means that there is no such name.
func notFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}
