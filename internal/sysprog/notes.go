package sysprog

import "sync"

// A noteCache keeps what was made of a key. The keys are flags and modes that the
// code has as constants: every program has the same few, in hundreds of steps.
// Values are shared by programs and never change.
type noteCache[K comparable, V any] struct {
	mu   sync.RWMutex
	made map[K]V
}

// maxNotes bounds a cache, should somebody make keys of what comes from elsewhere.
const maxNotes = 256

// get returns what is kept for a key, or else makes it.
func (c *noteCache[K, V]) get(key K, make func(K) V) V {
	c.mu.RLock()
	v, ok := c.made[key]
	c.mu.RUnlock()
	if ok {
		return v
	}
	v = make(key)
	c.keep(key, v)
	return v
}

func (c *noteCache[K, V]) keep(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made = map[K]V{}
	}
	if len(c.made) < maxNotes {
		c.made[key] = v
	}
}
