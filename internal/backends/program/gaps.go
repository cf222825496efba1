package program

import (
	"fmt"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Gaps lists the rules that only a broker can enforce, if there is none, and the guarded
// folders to which the rights of a folder around them apply.
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

// NameGaps lists the rules of a plan that can only be enforced by checking names.
func NameGaps(p *plan.Plan, reason, fix string) []backend.Gap {
	var l GapList
	add := func(rule, subject string, o policy.Origin, optional bool) {
		l.Add(backend.Gap{Rule: rule, Origin: o, Reason: reason, Fix: fix, Optional: optional}, subject)
	}
	for i := range p.Paths {
		if e := &p.Paths[i]; e.Kind == hostfs.Missing {
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
	return l.List()
}

// A GapList collects gaps. Gaps with the same rule and reason are combined, because a person
// reads them before each run.
type GapList struct{ gaps []backend.Gap }

// Add adds a gap, or adds its subject to an equal gap.
func (l *GapList) Add(g backend.Gap, subject string) {
	for i := range l.gaps {
		if o := &l.gaps[i]; o.Rule == g.Rule && o.Reason == g.Reason && o.Optional == g.Optional {
			o.Subjects = append(o.Subjects, subject)
			return
		}
	}
	if subject != "" {
		g.Subjects = []string{subject}
	}
	l.gaps = append(l.gaps, g)
}

// List returns the gaps. Each names the first few of its subjects.
func (l *GapList) List() []backend.Gap {
	const few = 3
	for i := range l.gaps {
		all := l.gaps[i].Subjects
		l.gaps[i].Subject = strings.Join(all[:min(few, len(all))], ", ")
		if len(all) > few {
			l.gaps[i].Subject += fmt.Sprintf(" and %d more", len(all)-few)
		}
	}
	return l.gaps
}

func globRule(g *plan.Glob) string {
	if g.Access == policy.Read {
		return "paths.protect"
	}
	return "paths.hide"
}
