package notify

import (
	"sync"

	"github.com/cloche-dev/cloche/plan"
)

// maxDenials bounds what a command can make the supervisor remember.
const maxDenials = 1000

// denials is the record of what was refused.
type denials struct {
	mu    sync.Mutex
	list  []plan.Denial
	index map[denialKey]int
	// dropped counts those that were too many.
	dropped int
}

type denialKey struct {
	op   plan.Op
	path string
}

func (d *denials) add(n plan.Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := denialKey{n.Op, n.Path}
	if i, ok := d.index[key]; ok {
		d.list[i].Count++
		return
	}
	if len(d.list) >= maxDenials {
		d.dropped++
		return
	}
	if d.index == nil {
		d.index = map[denialKey]int{}
	}
	n.Count = 1
	d.index[key] = len(d.list)
	d.list = append(d.list, n)
}

func (d *denials) known(op plan.Op, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.index[denialKey{op, path}]
	return ok
}

func (d *denials) all() ([]plan.Denial, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]plan.Denial(nil), d.list...), d.dropped
}
