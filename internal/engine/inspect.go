package engine

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// uninspected returns the gaps of a launch whose plan needs a look inside TLS, if nothing here
// can look. With these gaps a strict policy does not run. Otherwise a host that only rules about
// requests allow stays closed, rules that deny requests close all of their host, and secrets are
// not put in: the server gets the placeholder.
func (e *Engine) uninspected(p *plan.Plan, l *backend.Launch) []backend.Gap {
	n := &p.Network
	if e.config.Inspect != nil || !l.Confined || !n.NeedsInspection() {
		return nil
	}
	const fix = "run it with cloche-https, which can; or allow the host as a whole, as in HOST:443"
	var gaps []backend.Gap
	add := func(rule, effect string, list []plan.HostPort) {
		var g *backend.Gap
		for _, h := range list {
			if h.Protocol != policy.HTTPS {
				continue
			}
			if g == nil {
				gaps = append(gaps, backend.Gap{Rule: rule, Subject: h.String(), Origin: h.Origin, Reason: "this program cannot look inside TLS: " + effect, Fix: fix})
				g = &gaps[len(gaps)-1]
			}
			g.Subjects = append(g.Subjects, h.String())
		}
	}
	add("network.allow", "connections to such hosts are denied", n.Allow)
	add("network.deny", "all connections to such hosts are denied", n.Deny)
	add("secrets", "the server gets the placeholder", n.Inspect)
	return gaps
}
