//go:build linux

package usernet

import (
	"context"
	"net"
	"net/netip"
)

// A Gate decides about what leaves the sandbox and opens it on the host. Its
// methods are called concurrently; the context ends with the [Stack].
//
// The type parameters let a gate return its own types: a refusal that is the
// zero value of R, a nil pointer, means that there is none.
type Gate[F Flow, R Refusal] interface {
	// OpenTCP judges a connection and opens it.
	OpenTCP(ctx context.Context, client, dst netip.AddrPort) (F, R)
	// OpenUDP judges a flow of datagrams and opens a connected socket for it.
	OpenUDP(ctx context.Context, client, dst netip.AddrPort) (net.Conn, R)
	// Ping judges an echo request; the stack sends it.
	Ping(ctx context.Context, client, dst netip.Addr) R
}

// A Flow is an open connection of the host.
type Flow interface {
	// Relay copies both ways until both are done, and closes both ends. The
	// client has the methods CloseRead, CloseWrite and SetLinger of a
	// net.TCPConn, too.
	Relay(client net.Conn)
	// Close gives up a flow that was not relayed.
	Close() error
}

// A Refusal says that something was not opened, and how to say so.
type Refusal interface {
	comparable
	refusal
}

type refusal interface {
	// Answers reports whether a TCP client should be connected all the same,
	// to be told by Serve in the protocol it speaks.
	Answers() bool
	// Serve answers a connected client and closes the connection.
	Serve(client net.Conn)
	// Close gives up a refusal that Answers and was not served.
	Close() error
	// Err is nil for a refusal by rule, and else why the connection failed.
	Err() error
}

// An opener is a Gate without its type parameters.
type opener struct {
	tcp  func(ctx context.Context, client, dst netip.AddrPort) (Flow, refusal)
	udp  func(ctx context.Context, client, dst netip.AddrPort) (net.Conn, refusal)
	ping func(ctx context.Context, client, dst netip.Addr) refusal
}

func openerOf[F Flow, R Refusal](g Gate[F, R]) opener {
	return opener{
		tcp: func(ctx context.Context, client, dst netip.AddrPort) (Flow, refusal) {
			flow, r := g.OpenTCP(ctx, client, dst)
			return flow, plain(r)
		},
		udp: func(ctx context.Context, client, dst netip.AddrPort) (net.Conn, refusal) {
			conn, r := g.OpenUDP(ctx, client, dst)
			return conn, plain(r)
		},
		ping: func(ctx context.Context, client, dst netip.Addr) refusal {
			return plain(g.Ping(ctx, client, dst))
		},
	}
}

// plain turns the zero value of R into a nil interface.
func plain[R Refusal](r R) refusal {
	var none R
	if r == none {
		return nil
	}
	return r
}
