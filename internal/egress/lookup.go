package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxLookups bounds the names whose addresses are kept.
	maxLookups = 1024
	// maxAnswers bounds the addresses of one name.
	maxAnswers = 32
	// lookupWait bounds one look-up.
	lookupWait = 10 * time.Second
	// hostTTL is how long an answer of the host's resolver holds, which does
	// not tell.
	hostTTL = 30 * time.Second
)

// lookups keeps the addresses of names for as long as they hold, and lets equal
// look-ups at the same time be one. A client asks for both families.
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

// lookUp returns the addresses of a name, those of both families in turn, and how
// long they hold. It does not judge them.
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

// join finds the look-up of a name, or begins one, which the caller has to do.
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

// stale reports whether a look-up is over and its answer holds no more. Failures
// do not hold at all.
func (l *lookup) stale(now time.Time) bool {
	select {
	case <-l.done:
		return l.err != nil || !now.Before(l.expires)
	default:
		return false
	}
}

// prune makes room: what is stale goes, and if that is nothing, everything.
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

// resolve does a look-up. It does not depend on the client that asked first:
// others may wait for it, too.
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
	// A time of 0 still has to last for the connection that follows.
	l.expires = time.Now().Add(max(ttl, time.Second))
	if len(l.addrs) == 0 {
		l.err = &net.DNSError{Err: "the name has no address", Name: name, IsNotFound: true}
	}
}

// hostResolve asks the host's name servers, and its /etc/hosts. The resolver of Go is the
// one that takes nothing for an address that is not one.
func hostResolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	resolver := net.Resolver{PreferGo: true}
	// The dot keeps the host's search list out of it.
	addrs, err := resolver.LookupNetIP(ctx, "ip", name+".")
	return addrs, hostTTL, err
}

// notFound reports whether a failed look-up means that there is no such name.
func notFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}
