package policy

// Network says what the command can reach.
type Network struct {
	Mode NetworkMode
	// Link is how packets leave in the mode NetworkUser.
	Link Link
	// LinkOrigin is where Link was set.
	LinkOrigin Origin
	// Allow and Deny apply in the mode NetworkUser. An empty Allow allows nothing,
	// and Deny wins over Allow.
	Allow []HostRule
	Deny  []HostRule
	// Publish are ports inside that the host can connect to, Forward are ports of
	// the host's loopback that the command can connect to. Neither has a meaning
	// in the mode NetworkHost.
	Publish []PortRule
	Forward []PortRule
	Origin  Origin
}

// A HostRule matches hosts and ports.
type HostRule struct {
	// Host is a name, "*.name" for all names below one, "*" for every public host, an address
	// or a CIDR. Addresses that are not public (private, link-local, metadata services) are
	// only reached by a rule that is an address or a CIDR, even if an allowed name resolves to
	// them. Private addresses are also reached by a rule with Private.
	Host string
	// Port is 0 for every port. With LastPort it is the first one of a range.
	Port, LastPort int
	// Protocol is "tcp", "udp" or "icmp" (echo), and empty for all of them. [HTTPS] is for
	// requests inside TLS: cloche ends TLS with such a host, and checks and records each
	// request. A host that only such a rule allows cannot be reached by another protocol.
	Protocol string
	// EndToEnd keeps TLS with the host end-to-end where a wider rule or a secret would have
	// cloche look inside.
	EndToEnd bool `json:",omitzero"`
	// Private: the name may resolve to a private address, as those of hosts inside a
	// company do. The name server then chooses which.
	Private bool
	// Methods and Paths are for HTTP: with either, each request is checked. Without the
	// protocol [HTTPS] it is plain HTTP.
	// In a path, "*" matches the text between two slashes and "**" any number of
	// such parts.
	Methods []string
	Paths   []string
	// Reason is shown with the rule.
	Reason string
	Origin Origin
}

// A PortRule connects a port of the host with one inside.
type PortRule struct {
	// Address is where the host listens for a published port; empty is 127.0.0.1. A forwarded
	// port is always one of the host's loopback.
	Address string
	// Host is the host's port, 0 for any free one (published ports only). Inside
	// is the port inside.
	Host, Inside int
	// Protocol is "tcp" or "udp"; empty is "tcp".
	Protocol string
	Origin   Origin
}

// Link is how packets leave a user-mode network.
type Link int

// The links.
const (
	LinkAuto  Link = iota // the best of tun, veth and proxy that works here
	LinkTUN               // a TUN device, which needs /dev/net/tun
	LinkVeth              // a pair of virtual Ethernet devices inside
	LinkProxy             // no packets: HTTP and SOCKS proxies inside, which variables name
)

func linkNames() []string { return []string{"auto", "tun", "veth", "proxy"} }

func (l Link) String() string                { return enumString(linkNames(), l) }
func (l Link) MarshalText() ([]byte, error)  { return enumText(linkNames(), l) }
func (l *Link) UnmarshalText(b []byte) error { return enumParse(linkNames(), b, l) }
