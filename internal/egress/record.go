package egress

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// A Track follows one connection, so that the end of a command can wait for the records
// of its connections.
type Track interface {
	// Owned reports the process that has the connection, or 0 if none was found. It is
	// called as soon as that is known, at most once, before Ended.
	Owned(pid int)
	// Ended reports the record. It is called once.
	Ended(plan.Connection)
}

// A Record is a connection that is being made or used: its future record, and a way to
// end it.
type Record struct {
	plan.Connection
	// Ctx ends with the connection. Ending it ends the connection.
	Ctx    context.Context
	cancel context.CancelFunc

	sent, received atomic.Int64
	// flushed is closed when all data from the sandbox was passed on.
	flushed   chan struct{}
	flushOnce sync.Once

	track  Track                 // optional
	write  func(plan.Connection) // optional; for a record without a track
	owner  chan owner            // nil: nobody searches for it, or it is known
	finish sync.Once
}

type owner struct {
	pid     int
	program string
}

// NewRecord begins the record of a connection, before any part of it is made. If begun
// is not nil, the connection is tracked, and can be ended early: once its data is
// flushed, or after the grace time. Otherwise write gets the record.
func NewRecord(ctx context.Context, c plan.Connection, begun func(end func()) Track, write func(plan.Connection), grace time.Duration) *Record {
	r := &Record{Connection: c, write: write, flushed: make(chan struct{})}
	r.Start = time.Now()
	r.Ctx, r.cancel = context.WithCancel(ctx)
	if begun != nil {
		r.track = begun(func() {
			select {
			case <-r.flushed:
			case <-r.Ctx.Done():
			case <-time.After(grace):
			}
			r.cancel()
		})
	}
	return r
}

// FindOwner starts the search for the process whose socket has these ends. It starts
// early, because the socket may be gone when the record is written, and runs in
// parallel, because it is slow.
func (r *Record) FindOwner(find func(protocol string, local, remote netip.AddrPort) (int, string), local, remote netip.AddrPort) {
	r.owner = make(chan owner, 1)
	go func(protocol string, found chan<- owner) {
		pid, program := find(protocol, local, remote)
		if r.track != nil {
			r.track.Owned(pid)
		}
		found <- owner{pid, program}
	}(r.Protocol, r.owner)
}

// AwaitOwner waits for the owner and records it.
func (r *Record) AwaitOwner() {
	if r.owner != nil {
		o := <-r.owner
		r.owner, r.Pid, r.Program = nil, o.pid, o.program
	}
}

// Count adds bytes that left the sandbox, and bytes that entered it.
func (r *Record) Count(sent, received int64) {
	r.sent.Add(sent)
	r.received.Add(received)
}

// Flushed reports that all data from the sandbox was passed on.
func (r *Record) Flushed() { r.flushOnce.Do(func() { close(r.flushed) }) }

// Finish writes the record, once. failure is why the connection failed, or "".
func (r *Record) Finish(failure string) {
	r.finish.Do(func() {
		r.Duration = time.Since(r.Start)
		if failure != "" {
			r.Error = failure
		}
		r.Sent, r.Received = r.sent.Load(), r.received.Load()
		r.AwaitOwner()
		r.cancel()
		switch {
		case r.track != nil:
			r.track.Ended(r.Connection)
		case r.write != nil:
			r.write(r.Connection)
		}
	})
}
