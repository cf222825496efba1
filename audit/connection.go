package audit

import (
	"net"
	"strconv"
)

// The verdicts of events that are about one: of decisions and connections.
const (
	Allow = "allow"
	Deny  = "deny"
)

// The directions of a connection.
const (
	// Out: the command connected to a host.
	Out = "out"
	// Published: somebody outside connected to a server inside.
	Published = "publish"
	// Forwarded: the command connected to a forwarded port of the host.
	Forwarded = "forward"
)

// A Connection is one connection of a command, with the network's side of its
// event: the event itself has the run, the verdict, the rule, the duration and
// the error. Its line is written when the connection ends, so the time of the
// event less its duration is when it began. One that was refused has a line
// too, with no bytes.
//
// A line whose Count is not 0 stands for that many connections, which had no
// line of their own because the run had so many. Only the bytes and Refused are
// set beside it.
type Connection struct {
	Direction string `json:"direction,omitempty"`
	// Protocol is tcp, udp or icmp, or dns for a name that was not looked up.
	Protocol string `json:"protocol,omitempty"`
	// Name is the host by the name that the command asked for, where it did.
	Name string `json:"name,omitempty"`
	// Address is the other end. It is empty where it never came to one.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	// Sent is what left the sandbox, Received what came in, in bytes.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Requests is how many HTTP requests were judged one by one.
	Requests int `json:"requests,omitempty"`
	// PID is the process inside as the host numbers it, Program the name it ran
	// under, as far as they could be found out.
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`

	Count   int `json:"count,omitempty"`
	Refused int `json:"refused,omitempty"`
}

// Host is the other end as a person knows it: the name, or else the address.
func (c *Connection) Host() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Address
}

// Target is the host with its port.
func (c *Connection) Target() string {
	if c.Port == 0 {
		return c.Host()
	}
	return net.JoinHostPort(c.Host(), strconv.Itoa(c.Port))
}
