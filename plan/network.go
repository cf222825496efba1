package plan

import (
	"net/netip"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

// Network is what can be reached.
type Network struct {
	Mode policy.NetworkMode `json:"mode"`
	// Link is how packets leave in the mode user. It is never LinkAuto there:
	// that was decided when the plan was made.
	Link policy.Link `json:"link,omitempty"`
	// LinkReason says why it is that link, if the policy left the choice.
	LinkReason string `json:"link_reason,omitempty"`
	// LinkOrigin is where the link was chosen.
	LinkOrigin policy.Origin `json:"link_origin,omitzero"`
	Allow      []HostPort    `json:"allow,omitempty"`
	Deny       []HostPort    `json:"deny,omitempty"`
	// Publish and Forward are the ports that cross the border.
	Publish []Port `json:"publish,omitempty"`
	Forward []Port `json:"forward,omitempty"`
	// Abstract are the names, without the "@", of the host's abstract unix sockets
	// to which connections are carried. In the mode host there is nothing to carry.
	Abstract []string      `json:"abstract,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// A HostPort is one network rule, as policy.HostRule explains it.
type HostPort struct {
	Host string `json:"host"`
	// Port is 0 for every port; LastPort is the end of a range, or 0.
	Port     int           `json:"port,omitempty"`
	LastPort int           `json:"last_port,omitempty"`
	Protocol string        `json:"protocol,omitempty"`
	Private  bool          `json:"private,omitempty"`
	Methods  []string      `json:"methods,omitempty"`
	Paths    []string      `json:"paths,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// String returns the rule as a policy has it.
func (h HostPort) String() string { return policy.HostRule(h).String() }

// A Port is a port that is published or forwarded, as policy.PortRule explains it.
type Port struct {
	// Address is where the host listens, or is connected to. It is never empty.
	Address string `json:"address"`
	// Host is the host's port, 0 for any free one; Inside is the one inside.
	Host   int `json:"host"`
	Inside int `json:"inside"`
	// Protocol is tcp or udp.
	Protocol string        `json:"protocol"`
	Origin   policy.Origin `json:"origin"`
}

// String returns the port as a policy has it.
func (p Port) String() string {
	r := policy.PortRule(p)
	if r.Address == "127.0.0.1" {
		r.Address = ""
	}
	return r.String()
}

// NeedsHelp reports whether a process outside has to serve the network: it
// carries packets, ports, or connections to abstract sockets.
func (n *Network) NeedsHelp() bool {
	return n.Mode == policy.NetworkUser || n.Mode != policy.NetworkHost && len(n.Publish)+len(n.Forward)+len(n.Abstract) > 0
}

// A Connection is one connection that was made, or refused.
type Connection struct {
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
	// Protocol is tcp, udp or icmp, or unix for an abstract socket that is granted.
	Protocol string `json:"protocol"`
	// Name is what the client asked for, if it is known; Addr is what it led to.
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port int        `json:"port,omitempty"`
	// Sent and Received count bytes of payload as the command sees them. Requests
	// is how many requests of plain HTTP were judged.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	Requests int   `json:"requests,omitempty"`
	Allowed  bool  `json:"allowed"`
	// Rule and Subject name the deciding rule, as in Decision.
	Rule    string `json:"rule,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Error is how it failed, if it did.
	Error string `json:"error,omitempty"`
	// Pid is the process as the host numbers it, Program the name it runs under.
	Pid     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Direction is out, publish or forward.
	Direction string `json:"direction"`
}
