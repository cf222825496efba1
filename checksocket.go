package cloche

import "github.com/cloche-dev/cloche/policy"

// checkAbstract says whether an abstract unix socket of the host can be reached.
// In the host's own network the grant of one opens them all, which is a gap.
func (s *Session) checkAbstract(target string) Decision {
	d := Decision{Action: "connect", Target: target, Resolved: target, Rule: "abstract sockets are closed unless granted",
		Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}}
	for _, g := range s.Explain().Sockets {
		if g.Source == target {
			d.Allowed, d.Rule, d.Origin = true, "sockets "+g.Path, g.Origin
			return d
		}
	}
	d.Fix = []policy.Edit{{Field: policy.EditSocket, Value: target}}
	return d
}
