package inspect

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"sync/atomic"
)

// maxValues bounds the values that are known of one placeholder. Sources that give another
// value each time (short-lived tokens) have their last ones searched for.
const maxValues = 8

// A vault keeps the values that were put into requests, to find them in answers. The texts
// are masked: a dump of the process has no value in clear from here.
type vault struct {
	key     [32]byte // for the fingerprints of values
	mask    mask
	matcher atomic.Pointer[matcher]

	mu     sync.Mutex
	values []known
}

type known struct {
	of          int
	fingerprint [sha256.Size]byte
	patterns    []pattern
}

func newVault() *vault {
	v := new(vault)
	_, _ = rand.Read(v.key[:]) // it never fails
	_, _ = rand.Read(v.mask[:])
	return v
}

// learn adds the value of a token. It keeps no reference to value.
func (v *vault) learn(of int, value []byte, placeholder string) {
	h := hmac.New(sha256.New, v.key[:])
	h.Write(value)
	fingerprint := [sha256.Size]byte(h.Sum(nil))
	v.mu.Lock()
	defer v.mu.Unlock()
	same, oldest := 0, -1
	for n, k := range v.values {
		if k.of != of {
			continue
		}
		if k.fingerprint == fingerprint {
			return
		}
		if same++; oldest < 0 {
			oldest = n
		}
	}
	if same >= maxValues {
		v.values = append(v.values[:oldest], v.values[oldest+1:]...)
	}
	k := known{of: of, fingerprint: fingerprint}
	if len(value) >= minSpelling {
		k.patterns = patternsOf(of, value, fit([]byte(placeholder), len(value)))
	}
	for _, p := range k.patterns {
		v.mask.apply(p.text)
	}
	v.values = append(v.values, k)
	var all []pattern
	for _, k := range v.values {
		all = append(all, k.patterns...)
	}
	v.matcher.Store(newMatcher(all, &v.mask))
}

// search returns the matcher of the values that are known now. It is nil if there are
// none.
func (v *vault) search() *matcher { return v.matcher.Load() }
