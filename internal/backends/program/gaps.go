package program

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/builtin"
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

// NameGaps lists the rules of a plan that hold only if names are judged: one gap
// for all that differ in nothing but the name.
func NameGaps(p *plan.Plan, reason, fix string) []backend.Gap {
	var gaps []backend.Gap
	subjects := map[int][]string{}
	add := func(rule, subject string, o policy.Origin, optional bool) {
		i := slices.IndexFunc(gaps, func(g backend.Gap) bool { return g.Rule == rule && g.Optional == optional })
		if i < 0 {
			i = len(gaps)
			gaps = append(gaps, backend.Gap{Rule: rule, Origin: o, Reason: reason, Fix: fix, Optional: optional})
		}
		subjects[i] = append(subjects[i], subject)
	}
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Kind == host.Missing {
			add("paths.protect", e.Path, e.Origin, e.Optional)
		}
	}
	for i := range p.Globs {
		g := &p.Globs[i]
		add(globRule(g), g.Pattern, g.Origin, g.Optional)
	}
	for _, root := range p.Guarded() {
		add(builtin.RuleGit, root, p.Lookup(root).Origin, true)
	}
	for i := range gaps {
		gaps[i].Subject, gaps[i].Subjects = some(subjects[i]), subjects[i]
	}
	return gaps
}

// some names the first few.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

func globRule(g *plan.Glob) string {
	if g.Access == policy.Read {
		return "paths.protect"
	}
	return "paths.hide"
}
