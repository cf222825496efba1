package testnet

import (
	"net/netip"
	"strings"
)

// NameServer is where the machine's resolver asks. It also counts: see [Queries].
const NameServer = "9.9.9.9"

// Names are what the name server knows. A name of which the addresses are in
// several lists answers with the next list at each query.
var Names = map[string][][]string{
	"good.example":     {{"93.184.216.34", "2606:2800:220:1::34"}},
	"other.example":    {{"93.184.216.35", "2606:2800:220:1::35"}},
	"api.good.example": {{"93.184.216.36"}},
	"four.example":     {{"93.184.216.37"}},
	"six.example":      {{"2606:2800:220:1::37"}},
	// shared.example has the address of good.example.
	"shared.example": {{"93.184.216.34"}},
	// Names that lead where no public name may.
	"private.example":  {{"10.1.2.3"}},
	"metadata.example": {{"169.254.169.254"}},
	"loopback.example": {{"127.0.0.1", "::1"}},
	"machine.example":  {{MachineV4, MachineV6}},
	"mapped.example":   {{"::ffff:10.1.2.3"}},
	// rebind.example is public at first, and then is not.
	"rebind.example": {{"93.184.216.38"}, {"10.1.2.3"}},
	"mixed.example":  {{"93.184.216.38", "10.1.2.3"}},
}

// Addresses without a name.
const (
	// Nameless is a public address.
	Nameless = "93.184.216.99"
	// Private is an address of the private network beyond the machine.
	Private = "10.1.2.3"
	// Metadata is where clouds keep credentials.
	Metadata = "169.254.169.254"
)

// addresses are all that the internet answers at, with the length of their
// prefix.
func addresses() []string {
	own := map[string]bool{MachineV4: true, MachineV6: true, "127.0.0.1": true, "::1": true}
	all := []string{NameServer, Nameless, Private, Metadata}
	for _, lists := range Names {
		for _, list := range lists {
			all = append(all, list...)
		}
	}
	var out []string
	for _, a := range all {
		if own[a] || strings.HasPrefix(a, "::ffff:") {
			continue
		}
		own[a] = true
		bits := "/32"
		if netip.MustParseAddr(a).Is6() {
			bits = "/128"
		}
		out = append(out, a+bits)
	}
	return out
}
