package network

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// maxCarried bounds the connections to one abstract socket that are carried at a
// time; more of them wait to be accepted.
const maxCarried = 256

// abstractSocket carries connections from a listener inside to the host's socket
// of the same name. A namespace has names of its own, so that the command sees
// this one and none of the others. Only streams are carried, with the descriptors
// that are passed on them; datagram sockets of that name cannot be reached.
type abstractSocket struct {
	name     string
	listener *net.UnixListener
	tell     func(plan.Connection)

	mu     sync.Mutex
	closed bool
	open   map[*net.UnixConn]bool
	busy   sync.WaitGroup
	room   chan struct{}
}

// carryAbstract begins to carry connections.
func carryAbstract(l *net.UnixListener, name string, tell func(plan.Connection)) *abstractSocket {
	s := &abstractSocket{name: name, listener: l, tell: tell, open: map[*net.UnixConn]bool{}, room: make(chan struct{}, maxCarried)}
	s.busy.Add(1)
	go s.accept()
	return s
}

// Close ends all connections, and returns when they have been told of.
func (s *abstractSocket) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.busy.Wait()
	return err
}

func (s *abstractSocket) accept() {
	defer s.busy.Done()
	for {
		s.room <- struct{}{}
		inside, err := s.listener.AcceptUnix()
		if err != nil {
			return // it is closed: nothing else ends a listener
		}
		s.busy.Add(1)
		go func() {
			defer s.busy.Done()
			defer func() { <-s.room }()
			s.carry(inside)
		}()
	}
}

// carry connects one client to the host's socket.
func (s *abstractSocket) carry(inside *net.UnixConn) {
	record := plan.Connection{Start: time.Now(), Protocol: "unix", Name: "@" + s.name, Direction: "out", Allowed: true, Rule: "sockets", Subject: "@" + s.name}
	defer func() {
		record.Duration = time.Since(record.Start)
		s.tell(record)
	}()
	defer inside.Close()
	outside, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: "@" + s.name})
	if err != nil {
		record.Error = fmt.Sprint(err)
		return
	}
	defer outside.Close()
	if !s.hold(inside, outside) {
		return
	}
	defer s.release(inside, outside)
	sent := make(chan int64)
	go func() { sent <- pipeUnix(outside, inside) }()
	record.Received = pipeUnix(inside, outside)
	record.Sent = <-sent
}

// hold remembers connections, to be closed with the rest.
func (s *abstractSocket) hold(conns ...*net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for _, c := range conns {
		s.open[c] = true
	}
	return true
}

func (s *abstractSocket) release(conns ...*net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		delete(s.open, c)
	}
}
