package network

import (
	"sync"
	"time"
)

const (
	// lastCall is how long a listener still takes what waits in its queue.
	lastCall = time.Millisecond
	// drainTime is how long what the command has sent may take to leave.
	drainTime = time.Second
)

// A drain lets out what a command sent just before it ended: its processes are
// gone, but connections may wait to be accepted and bytes to be carried.
type drain struct {
	ending    chan struct{} // closed when nothing new is waited for
	once      sync.Once
	mu        sync.Mutex
	deadlines []func(time.Time) error // of the listeners
	accepting sync.WaitGroup
	flushing  sync.WaitGroup
}

// accept runs a loop that takes what arrives at a listener. It has to end when the
// deadline that is set has passed.
func (d *drain) accept(setDeadline func(time.Time) error, loop func()) {
	d.mu.Lock()
	d.deadlines = append(d.deadlines, setDeadline)
	d.mu.Unlock()
	d.accepting.Go(loop)
}

// begin counts a connection until flushed is called, for the first time, because
// all that was to leave has left. Only a loop of accept may call it.
func (d *drain) begin() (flushed func()) {
	d.flushing.Add(1)
	return sync.OnceFunc(d.flushing.Done)
}

// finish takes what waits in the queues of the listeners, and waits until all of
// that has left or time is up.
func (d *drain) finish() {
	d.once.Do(func() { close(d.ending) })
	d.mu.Lock()
	for _, set := range d.deadlines {
		_ = set(time.Now().Add(lastCall)) // a listener that is closed needs none
	}
	d.mu.Unlock()
	d.accepting.Wait()
	done := make(chan struct{})
	go func() {
		d.flushing.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
	}
}
