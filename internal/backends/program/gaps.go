package program

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Gaps lists the rules that only a broker can hold where there is none, and the
// guarded folders for which the rights of something around them hold too.
func (d *Domain) Gaps() []backend.Gap {
	if !d.Available() {
		return NameGaps(d.Plan, "it is held by Landlock of Linux 5.19, which is missing", "use Linux 5.19 or newer with Landlock, or run with --best-effort")
	}
	var gaps []backend.Gap
	for _, p := range d.Guards {
		if around := d.OpenAround(p); around != "" {
			gaps = append(gaps, backend.Gap{Rule: "paths.protect", Subject: p, Origin: d.Plan.Lookup(p).Origin,
				Reason: "it lies in " + around + ", which is writable as a whole", Fix: "guard " + around + " as well"})
		}
	}
	return gaps
}

// NameGaps lists every rule of a plan that holds only if names are judged.
func NameGaps(p *plan.Plan, reason, fix string) []backend.Gap {
	var gaps []backend.Gap
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Kind == host.Missing {
			gaps = append(gaps, backend.Gap{Rule: "paths.protect", Subject: e.Path, Origin: e.Origin, Reason: reason, Fix: fix, Optional: e.Optional})
		}
	}
	for i := range p.Globs {
		g := &p.Globs[i]
		gaps = append(gaps, backend.Gap{Rule: globRule(g), Subject: g.Pattern, Origin: g.Origin, Reason: reason, Fix: fix, Optional: g.Optional})
	}
	return gaps
}

func globRule(g *plan.Glob) string {
	if g.Access == policy.Read {
		return "paths.protect"
	}
	return "paths.hide"
}
