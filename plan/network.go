package plan

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

// Network says what the command can reach over the network.
type Network struct {
	Mode policy.NetworkMode `json:"mode"`
	// Link is how packets leave in the mode user. It is never LinkAuto there: the resolver has
	// chosen one.
	Link policy.Link `json:"link,omitempty"`
	// LinkReason says why the resolver chose this link, if the policy did not name one.
	LinkReason string `json:"link_reason,omitempty"`
	// LinkOrigin is the rule that chose the link.
	LinkOrigin policy.Origin `json:"link_origin,omitzero"`
	Allow      []HostPort    `json:"allow,omitempty"`
	Deny       []HostPort    `json:"deny,omitempty"`
	// Inspect are hosts with which TLS is inspected for a secret, beside those of Allow and
	// Deny with the protocol https.
	Inspect []HostPort `json:"inspect,omitempty"`
	// Publish are ports of the command that the host can connect to, Forward are ports of the
	// host that the command can connect to.
	Publish []Port `json:"publish,omitempty"`
	Forward []Port `json:"forward,omitempty"`
	// Abstract are the names, without the "@", of the host's abstract unix sockets that the
	// command can connect to. It is empty in the mode host, where the command reaches them
	// directly.
	Abstract []string      `json:"abstract,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// A HostPort is one network rule; see policy.HostRule.
type HostPort struct {
	Host string `json:"host"`
	// Port is 0 for every port. LastPort is the end of a range, or 0.
	Port     int           `json:"port,omitempty"`
	LastPort int           `json:"last_port,omitempty"`
	Protocol string        `json:"protocol,omitempty"`
	EndToEnd bool          `json:"end_to_end,omitempty"`
	Private  bool          `json:"private,omitempty"`
	Methods  []string      `json:"methods,omitempty"`
	Paths    []string      `json:"paths,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// String returns the rule as a policy has it.
func (h HostPort) String() string { return policy.HostRule(h).String() }

// A Port is a published or forwarded port; see policy.PortRule.
type Port struct {
	// Address is the host's address on which cloche listens (published) or to which it
	// connects (forwarded). It is never empty.
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

// NeedsInspection reports whether cloche has to look inside TLS with some hosts: a rule is
// about requests there, or a secret is for them.
func (n *Network) NeedsInspection() bool {
	https := func(h HostPort) bool { return h.Protocol == policy.HTTPS }
	return n.Mode == policy.NetworkUser && (len(n.Inspect) > 0 || slices.ContainsFunc(n.Allow, https) || slices.ContainsFunc(n.Deny, https))
}

// NeedsHelp reports whether a process outside has to serve the network, because it carries
// packets, ports, or connections to abstract sockets.
func (n *Network) NeedsHelp() bool {
	return n.Mode == policy.NetworkUser || n.Mode != policy.NetworkHost && len(n.Publish)+len(n.Forward)+len(n.Abstract) > 0
}

// A Request is one request inside TLS.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Status is 0 if there was no answer.
	Status int `json:"status,omitempty"`
	// Secrets are the names of the secrets that were put in.
	Secrets []string `json:"secrets,omitempty"`
}

// A Connection is one connection that was made, or denied.
type Connection struct {
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
	// Protocol is tcp, udp or icmp, or unix for a granted abstract socket.
	Protocol string `json:"protocol"`
	// Name is what the client asked for, if known. Addr is the address it resolved to.
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port int        `json:"port,omitempty"`
	// Sent and Received count bytes of payload in the command's view. Requests counts the
	// HTTP requests that were checked.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	Requests int   `json:"requests,omitempty"`
	// Inspected are the requests inside TLS that cloche has looked into, the first thousand of them.
	Inspected []Request `json:"inspected,omitempty"`
	Allowed   bool      `json:"allowed"`
	// Rule and Subject name the deciding rule, as in Decision.
	Rule    string `json:"rule,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Error says how the connection failed, if it did.
	Error string `json:"error,omitempty"`
	// Pid is the process id on the host, Program the process's name.
	Pid     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	// Direction is out, publish or forward.
	Direction string `json:"direction"`
}
