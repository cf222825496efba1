package network

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// settleTime bounds the wait for connections that are made but not accepted:
	// where too many are open, none is.
	settleTime = time.Second
	// settleStep is how often it is looked whether they are.
	settleStep = 100 * time.Microsecond
)

// A queue is the connections that wait at a listener. A client inside has its
// connection, can write to it and end, before it is accepted here.
type queue struct {
	listener *net.TCPListener
	// file is a second descriptor of the listener: Go lets none be waited for on the
	// listener itself but by accepting. Nil: the queue is not looked at, because
	// nobody inside can connect there.
	file *os.File
	raw  syscall.RawConn
	// taking: what is about to be taken out of the queue is not followed yet.
	taking atomic.Bool
}

// lookAt begins to look at the queue of a listener inside.
func (p *Ports) lookAt(l *net.TCPListener) (q *queue, err error) {
	q = &queue{listener: l}
	if q.file, err = l.File(); err != nil {
		return nil, err
	}
	p.keep(q.file)
	if q.raw, err = q.file.SyscallConn(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues = append(p.queues, q)
	return q, nil
}

// setDeadline bounds the wait for connections.
func (q *queue) setDeadline(t time.Time) error {
	err := q.listener.SetDeadline(t)
	if q.file != nil {
		err = errors.Join(err, q.file.SetReadDeadline(t))
	}
	return err
}

// accept returns the next connection, which is being taken from before it leaves
// the queue until taken is called.
func (q *queue) accept() (c *net.TCPConn, err error) {
	if q.file != nil {
		err = q.wait()
	}
	if err == nil {
		c, err = q.listener.AcceptTCP()
	}
	if err != nil {
		q.taken()
	}
	return c, err
}

// wait returns when a connection waits.
func (q *queue) wait() error {
	return q.raw.Read(func(fd uintptr) bool {
		q.taking.Store(true)
		if readable(fd) {
			return true
		}
		q.taking.Store(false)
		return false
	})
}

// taken tells that what was being taken is followed.
func (q *queue) taken() { q.taking.Store(false) }

// empty reports whether no connection waits. What is seen to be out of the queue
// was marked as being taken before.
func (q *queue) empty() bool {
	waits := false
	_ = q.raw.Control(func(fd uintptr) { waits = readable(fd) }) // a closed one has none
	return !waits && !q.taking.Load()
}

// Settle returns when the connections that were made before are followed, or when
// that takes too long.
func (p *Ports) Settle() {
	p.mu.Lock()
	queues := p.queues
	p.mu.Unlock()
	end := time.Now().Add(settleTime)
	for _, q := range queues {
		for !q.empty() && time.Now().Before(end) {
			time.Sleep(settleStep)
		}
	}
}
