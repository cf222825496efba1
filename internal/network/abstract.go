package network

import (
	"context"
	"net"
	"sync"

	"github.com/cloche-dev/cloche/internal/egress"
	"github.com/cloche-dev/cloche/plan"
)

// maxCarried bounds the open connections to one abstract socket. Further ones wait to
// be accepted.
const maxCarried = 256

// abstractSocket connects a listener inside to the host's socket with the same name. A
// network namespace has its own abstract names, so the command sees only this one. It
// carries streams, with the descriptors that are passed on them. Datagram sockets with
// the name cannot be reached.
type abstractSocket struct {
	closers
	name     string
	listener *net.UnixListener
	record   func(plan.Connection)
	room     chan struct{}
}

// carryAbstract starts to accept and carry connections.
func carryAbstract(l *net.UnixListener, name string, record func(plan.Connection)) *abstractSocket {
	s := &abstractSocket{name: name, listener: l, record: record, room: make(chan struct{}, maxCarried)}
	s.work.Go(s.accept)
	return s
}

// Close ends all connections and returns when they are recorded.
func (s *abstractSocket) Close() error {
	err := s.listener.Close()
	s.closeAll()
	return err
}

func (s *abstractSocket) accept() {
	for {
		s.room <- struct{}{}
		inside, err := s.listener.AcceptUnix()
		if err != nil {
			return // the listener was closed; nothing else ends it
		}
		s.work.Go(func() {
			defer func() { <-s.room }()
			s.carry(inside)
		})
	}
}

// carry connects one client to the host's socket.
func (s *abstractSocket) carry(inside *net.UnixConn) {
	c := plan.Connection{Protocol: "unix", Name: "@" + s.name, Direction: "out", Allowed: true, Rule: "sockets", Subject: "@" + s.name}
	record, failure := egress.NewRecord(context.Background(), c, nil, s.record, 0), ""
	defer func() { record.Finish(failure) }()
	defer s.drop(inside)
	outside, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: "@" + s.name})
	if err != nil {
		failure = err.Error()
		return
	}
	defer s.drop(outside)
	if !s.keep(inside) || !s.keep(outside) {
		return
	}
	var up sync.WaitGroup
	up.Go(func() { record.Count(pipeUnix(outside, inside), 0) })
	record.Count(0, pipeUnix(inside, outside))
	up.Wait()
}
