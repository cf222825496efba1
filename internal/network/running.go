package network

import (
	"errors"
	"io"
	"sync"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
)

// A Config describes the network of a sandbox, and has the functions that report on it.
type Config struct {
	// Network is the network of the plan.
	Network *plan.Network
	// Ports are the published and forwarded ports, already bound (see Bind). Nil: none.
	// Start takes them over.
	Ports *Ports
	// Notice receives messages for the user. Optional.
	Notice func(string)
	// Gate has the functions that report on connections, including those of ports and
	// abstract sockets. All are called concurrently, until Close returns. Start sets Judge
	// and Owner.
	Gate egress.Config
}

// Running is the network of a sandbox that is being served.
type Running struct {
	once  sync.Once
	parts []io.Closer // closed from the last to the first
	err   error
}

// keep adds a part. Close closes it before the parts that were added earlier.
func (r *Running) keep(c io.Closer) { r.parts = append(r.parts, c) }

// Close ends the network. When it returns, all connections are recorded.
func (r *Running) Close() error {
	r.once.Do(func() {
		for i := len(r.parts) - 1; i >= 0; i-- {
			r.err = errors.Join(r.err, r.parts[i].Close())
		}
	})
	return r.err
}

// A closeFunc makes a function an io.Closer.
type closeFunc func()

// Close implements io.Closer.
func (f closeFunc) Close() error {
	f()
	return nil
}
