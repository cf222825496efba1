package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
)

// A Config describes the network of a sandbox, and has the functions that report on it.
type Config struct {
	// Network is the plan's. Judge returns the rules in force; nil: the plan's own.
	Network *plan.Network
	Judge   func() *plan.NetJudge
	// Ports are the published and forwarded ports, already bound: see Bind. Nil: none.
	// Start takes them over.
	Ports *Ports
	// Connection gets the record of every connection when it ends, Denied every denial,
	// and Notice messages for the user. All are called concurrently, until Close
	// returns. Optional.
	Connection func(plan.Connection)
	Denied     func(plan.Denial)
	Notice     func(string)
	// Begun is called for each connection before its owner can use it. The track that
	// it returns gets the record instead of Connection. end ends the connection, after
	// a short time for data that the sandbox has sent; it does not wait for the
	// record. Optional.
	Begun func(end func()) Track
	// Given and Ask ask a person about denied connections: see egress.Config. Optional.
	Given func(plan.Denial) (rules *plan.NetJudge, ask bool)
	Ask   func(context.Context, plan.Denial) *plan.NetJudge
	// Resolve and Dial replace the host's: see egress.Config. Optional.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, time.Duration, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Track follows one connection: see Config.
type Track = egress.Track

// Running is the network of a sandbox that is being served.
type Running struct {
	once  sync.Once
	parts []io.Closer // closed from the last to the first
	err   error
}

// keep adds a part. It is closed before the parts that it builds on.
func (r *Running) keep(c io.Closer) { r.parts = append(r.parts, c) }

// Close ends the network. When it returns, everything is recorded.
func (r *Running) Close() error {
	r.once.Do(func() {
		for i := len(r.parts) - 1; i >= 0; i-- {
			r.err = errors.Join(r.err, r.parts[i].Close())
		}
	})
	return r.err
}

// A closeFunc is an io.Closer that is a function.
type closeFunc func()

// Close implements io.Closer.
func (f closeFunc) Close() error {
	f()
	return nil
}
