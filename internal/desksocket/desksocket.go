// Package desksocket lets a person decide from another terminal. It serves a desk of
// package grant on a unix socket of the user, and finds the desks of all running
// commands.
//
// The socket leaves nothing behind. On Linux it is unlinked as soon as it exists, and
// is reached in /proc through a descriptor of the process that serves it. So it
// disappears when that process is killed. Confined commands cannot reach it, because
// their /proc does not show these processes.
package desksocket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/grant"
)

// Info describes the desk.
type Info struct {
	Pid       int       `json:"pid"`
	Command   []string  `json:"command,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
	Started   time.Time `json:"started"`
	// Session says that the desk serves more than one command, so that an answer can also
	// apply to later commands.
	Session bool `json:"session,omitempty"`
}

// maxMessage bounds a line of the protocol.
const maxMessage = 1 << 20

// idleTime is how long a connection may be silent.
const idleTime = time.Minute

// message is one line of the protocol, in either direction.
type message struct {
	// Op is "list" or "decide".
	Op       string          `json:"op,omitempty"`
	ID       string          `json:"id,omitempty"`
	Decision *grant.Decision `json:"decision,omitempty"`

	Info     *Info           `json:"info,omitempty"`
	Requests []grant.Request `json:"requests,omitempty"`
	Grant    *grant.Grant    `json:"grant,omitempty"`
	Error    string          `json:"error,omitempty"`
	// Gone says that the request no longer waits.
	Gone bool `json:"gone,omitempty"`
}

// A Server serves a desk.
type Server struct {
	desk     *grant.Desk
	info     Info
	listener *net.UnixListener
	release  func()
	open     context.Context // ends with the server
	stop     context.CancelFunc
	all      sync.WaitGroup
}

// Serve makes the socket in a folder of the user and answers on it.
func Serve(d *grant.Desk, info Info) (*Server, error) {
	l, release, err := listen()
	if err != nil {
		return nil, fmt.Errorf("a socket for approvals: %w", err)
	}
	s := &Server{desk: d, info: info, listener: l, release: release}
	s.open, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s, nil
}

// Close ends the server and its connections. The desk does not change.
func (s *Server) Close() {
	s.listener.Close()
	s.stop()
	s.all.Wait()
	s.release()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // there are too many descriptors; waiting clients keep waiting
			continue
		}
		if owner(c) != nil {
			c.Close()
			continue
		}
		s.all.Go(func() { s.serve(c) })
	}
}

func (s *Server) serve(c net.Conn) {
	defer context.AfterFunc(s.open, func() { c.Close() })()
	defer c.Close()
	in := bufio.NewReader(&io.LimitedReader{R: c, N: maxMessage})
	out := json.NewEncoder(c)
	for {
		if err := c.SetDeadline(time.Now().Add(idleTime)); err != nil {
			return
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		answer := message{Error: "the message is not one line of JSON"}
		if json.Unmarshal(line, &m) == nil {
			answer = s.answer(m)
		}
		if out.Encode(answer) != nil {
			return
		}
	}
}

func (s *Server) answer(m message) message {
	switch {
	case m.Op == "list":
		return message{Info: &s.info, Requests: s.desk.Pending()}
	case m.Op == "decide" && m.Decision != nil:
		g, err := s.desk.Decide(m.ID, *m.Decision)
		if err != nil {
			return message{Error: err.Error(), Gone: errors.Is(err, grant.ErrNotPending)}
		}
		return message{Grant: g}
	default:
		return message{Error: fmt.Sprintf("operation %q is not known", m.Op)}
	}
}
