//go:build linux

package usernet

import (
	"sync"
	"time"
)

// A deadline is one that can be moved while others wait for it. The zero value
// never passes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{} // closed when it has passed; nil until someone needs it
	over  bool
}

// set moves the deadline; the zero time takes it away.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	wait := time.Until(t)
	switch {
	case t.IsZero():
		d.reopen()
	case wait <= 0:
		d.expire()
	default:
		d.reopen()
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				d.expire()
			}
		})
		d.timer = timer
	}
}

// reopen makes a deadline that has passed one that has not.
func (d *deadline) reopen() {
	if d.over {
		d.over, d.ch = false, nil
	}
}

func (d *deadline) expire() {
	if d.over {
		return
	}
	d.over = true
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	close(d.ch)
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// channel is closed when the deadline passes.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}
