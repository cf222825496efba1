package cloche

import (
	"slices"

	"github.com/cloche-dev/cloche/plan"
)

// Published returns the ports of the host that lead to servers of the command
// while it runs, with the one that was taken where the policy leaves the choice.
// It is empty before Start.
func (c *Cmd) Published() []plan.Port { return slices.Clone(c.published) }

func (s *netService) publishedPorts() []plan.Port {
	if s == nil {
		return nil
	}
	return s.ports.Published()
}

// unpublish gives the host's ports back before the network ends.
func (s *netService) unpublish() {
	if s != nil {
		s.ports.Unpublish()
	}
}
