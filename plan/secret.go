package plan

import (
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// A Secret is a value that the command can use and cannot read; see policy.Secret.
type Secret struct {
	Name string `json:"name"`
	// Hosts are those that get the value: rules with the protocol https.
	Hosts []HostPort `json:"hosts"`
	// In are the places of a request; none is the header Authorization. See policy.SecretPlace.
	In []string `json:"in,omitempty"`
	// Sign is "aws" for a secret that signs requests.
	Sign string `json:"sign,omitempty"`
	// Placeholder is what the command has. It is worth nothing outside of this run, and is not in
	// the JSON: a record with it would help to recognise it.
	Placeholder string `json:"-"`
	// Sources are where the value comes from, in their order.
	Sources []policy.Source `json:"-"`
	Reason  string          `json:"reason,omitempty"`
	Origin  policy.Origin   `json:"origin"`
}

// From describes where the value comes from, without arguments of commands.
func (s *Secret) From() string {
	words := make([]string, len(s.Sources))
	for i, source := range s.Sources {
		words[i] = source.String()
	}
	return strings.Join(words, ", or ")
}

// String returns the name and the hosts.
func (s *Secret) String() string {
	hosts := make([]string, len(s.Hosts))
	for i, h := range s.Hosts {
		hosts[i] = strings.TrimPrefix(h.String(), "https://")
	}
	return s.Name + "@" + strings.Join(hosts, ",")
}
