package desktop

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/busaddress"
	"github.com/cloche-dev/cloche/internal/sessionbus"
)

// Name is the name on the bus of the program that shows notifications.
const Name = "org.freedesktop.Notifications"

const object = "/org/freedesktop/Notifications"

// calm is the least time between two notifications, so that a command cannot fill the screen.
const calm = 10 * time.Second

// A Notifier shows one notification while requests wait. It is a [grant.Approver] that never
// decides. Its zero value shows nothing.
type Notifier struct {
	// Patience is how long somebody else, such as a program, has to decide first.
	Patience time.Duration

	addresses []busaddress.Address

	mu      sync.Mutex
	waiting map[string]waiting // by the request's id
	wake    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// waiting is a request: since when it waits, and until when.
type waiting struct{ since, until time.Time }

// New returns a notifier for the session bus that the environment names.
func New() *Notifier {
	return &Notifier{addresses: sessionbus.Addresses()}
}

// Asked shows the notification, soon.
func (n *Notifier) Asked(_ *grant.Desk, r grant.Request) {
	if len(n.addresses) == 0 {
		return
	}
	n.mu.Lock()
	if n.waiting == nil {
		n.waiting, n.wake, n.done = map[string]waiting{}, make(chan struct{}, 1), make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		n.stop = stop
		go n.loop(ctx)
	}
	n.waiting[r.ID] = waiting{time.Now(), r.Expires}
	n.mu.Unlock()
	n.changed()
}

// Withdrawn removes the notification if nothing waits any more.
func (n *Notifier) Withdrawn(r grant.Request) {
	n.mu.Lock()
	_, known := n.waiting[r.ID]
	delete(n.waiting, r.ID)
	n.mu.Unlock()
	if known {
		n.changed()
	}
}

// Close removes the notification.
func (n *Notifier) Close() {
	n.mu.Lock()
	stop, done := n.stop, n.done
	n.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	select {
	case <-done:
	case <-time.After(time.Second): // the desktop does not answer
	}
}

func (n *Notifier) changed() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// state returns how many requests wait, since when the first does, and when the last expires.
func (n *Notifier) state() (count int, since, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.waiting {
		if since.IsZero() || w.since.Before(since) {
			since = w.since
		}
		if w.until.After(until) {
			until = w.until
		}
	}
	return len(n.waiting), since, until
}

// loop shows and removes the notification, until the context ends.
func (n *Notifier) loop(ctx context.Context) {
	defer close(n.done)
	var shown uint32 // the number of the notification, 0 if there is none
	var last time.Time
	for {
		if ctx.Err() != nil {
			n.remove(shown)
			return
		}
		count, since, until := n.state()
		pause := max(calm-time.Since(last), n.Patience-time.Since(since))
		var later <-chan time.Time
		switch {
		case count == 0:
			n.remove(shown)
			shown = 0
		case shown == 0 && pause > 0:
			later = time.After(pause)
		case shown == 0:
			shown = n.show(ctx, until)
			last = time.Now()
		}
		select {
		case <-n.wake:
		case <-later:
		case <-ctx.Done():
		}
	}
}

// show returns the number of the notification, or 0 if it could not be shown.
func (n *Notifier) show(ctx context.Context, until time.Time) uint32 {
	c, err := sessionbus.Dial(ctx, n.addresses)
	if err != nil {
		return 0
	}
	defer c.Close()
	answer, err := c.Call(method("Notify", "susssasa{sv}i"), notification(time.Until(until)))
	if err != nil || len(answer) != 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(answer)
}

func (n *Notifier) remove(shown uint32) {
	if shown == 0 {
		return
	}
	c, err := sessionbus.Dial(context.Background(), n.addresses)
	if err != nil {
		return
	}
	defer c.Close()
	var body sessionbus.Message
	body.Number(shown)
	_, _ = c.Call(method("CloseNotification", "u"), body) // somebody may have closed it
}

func method(member, signature string) sessionbus.Method {
	return sessionbus.Method{To: Name, Path: object, Interface: Name, Member: member, Signature: signature}
}

// notification returns the arguments of Notify. The notification expires with the requests,
// also if nobody is left to remove it.
func notification(expires time.Duration) sessionbus.Message {
	var m sessionbus.Message
	m.Text("cloche")
	m.Number(0) // it replaces no other
	m.Text("dialog-question")
	m.Text("cloche: a command waits for your decision")
	m.Text("It asks for more access. To see what it asks for, and to decide, type in a terminal: cloche approve")
	m.Number(0) // no actions
	m.Number(0) // no hints
	m.Align(8)  // of which each would begin here
	m.Number(uint32(min(max(expires.Milliseconds(), 1), 1<<30)))
	return m
}
