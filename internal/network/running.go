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

// A Config says what network a sandbox has, and whom to tell of what happens.
type Config struct {
	// Network is the plan's. Its rules are judged by Judge, or by its own if that
	// is nil.
	Network *plan.Network
	Judge   func() *plan.NetJudge
	// Ports are its published and forwarded ports, which are bound already: see
	// Bind. Nil is none. Start takes them over.
	Ports *Ports
	// Connection is told of every connection when it ends, Denied of every refusal,
	// and Notice of what a person should know. Each may be called by many
	// goroutines at once, until Close returns. Optional.
	Connection func(plan.Connection)
	Denied     func(plan.Denial)
	Notice     func(string)
	// Begun is told of every connection before its owner can have used it. What it
	// returns follows the connection, and gets its record in place of Connection.
	// end ends it, after it has let out for a moment what the sandbox has sent; it
	// does not wait for the record. Optional.
	Begun func(end func()) Track
	// Given and Ask are how somebody is asked about what is refused: see
	// egress.Config. Optional.
	Given func(plan.Denial) (rules *plan.NetJudge, ask bool)
	Ask   func(context.Context, plan.Denial) *plan.NetJudge
	// Resolve and Dial stand in for the host's: see egress.Config. Optional.
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

// keep remembers a part, to be closed before those that it builds on.
func (r *Running) keep(c io.Closer) { r.parts = append(r.parts, c) }

// Close ends the network. When it returns, everything has been told.
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
