// Package wellknown defines the addresses, paths and devices that are the same in every
// sandbox.
package wellknown

const (
	// PolicyFile is where a sandbox shows its own policy to its commands, for people and for a
	// cloche that runs inside.
	PolicyFile = "/run/cloche/policy"
	// SecretFolder has the files with placeholders of secrets that the host does not have.
	SecretFolder = "/run/cloche/secrets"
	// AuthorityFile has the certificate of the authority that inspects TLS in this run.
	AuthorityFile = "/run/cloche/trust/authority.pem"
	// BusPath is the path of the session bus inside.
	BusPath = "/run/cloche/bus"
	// BusVariable is the variable with the bus's address.
	BusVariable = "DBUS_SESSION_BUS_ADDRESS"
)

// The network of a sandbox in the mode user.
const (
	// Interface is the name of the interface inside.
	Interface = "cloche0"
	// Address4 and Address6 are the addresses of the command's side, with their prefixes.
	// Gateway4 and Gateway6 are those of the other side, which only answers ping.
	Address4 = "198.18.0.2/15"
	Gateway4 = "198.18.0.1"
	Address6 = "fd63:6c6f:6368::2/64"
	Gateway6 = "fd63:6c6f:6368::1"
	// Sinkhole contains the addresses that denied names resolve to.
	Sinkhole = "198.19.0.0/16"
	// DNSAddress is the address of the name server inside.
	DNSAddress = "127.0.0.1:53"
	// ProxyAddress is where the proxies listen inside: HTTP and SOCKS on one port.
	ProxyAddress = "127.0.0.1:3128"
)

// DeviceNodes are the devices in the command's own /dev. They are the host's, give access to
// nothing else, and can be read and written.
var DeviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}
