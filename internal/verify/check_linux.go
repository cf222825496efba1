package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// A check is one rule, the attempts at it, and how to judge what came of them.
type check struct {
	// rules are what the check is about: a gap of the backend in one of them
	// excuses a failure. The first is the one that is reported.
	rules   []string
	subject string
	// place is another path that the subject is seen at, for gaps.
	place    string
	origin   policy.Origin
	attempts []attempt
	judge    func([]answer) verdict
}

// A verdict is what a check says.
type verdict struct {
	outcome Outcome
	detail  string
}

func held(format string, args ...any) verdict { return verdict{Held, fmt.Sprintf(format, args...)} }
func broken(format string, args ...any) verdict {
	return verdict{NotHeld, fmt.Sprintf(format, args...)}
}
func untested(format string, args ...any) verdict {
	return verdict{NotTestable, fmt.Sprintf(format, args...)}
}

// finding judges the answers. A failure that falls into a gap of the backend is that
// gap, and each such gap is marked in met.
func (c *check) finding(answers []answer, gaps []backend.Gap, met []bool) Finding {
	v := c.judge(answers)
	f := Finding{Rule: c.rules[0], Subject: c.subject, Outcome: v.outcome, Detail: v.detail, Origin: c.origin}
	if v.outcome != NotHeld {
		return f
	}
	for i := range gaps {
		if !c.in(&gaps[i]) {
			continue
		}
		met[i] = true
		if f.Outcome != Gap {
			f.Outcome = Gap
			f.Detail += "; not held by this backend: " + gaps[i].Reason
		}
	}
	return f
}

// in reports whether a failure of the check falls into a gap.
func (c *check) in(g *backend.Gap) bool {
	return slices.ContainsFunc(c.rules, func(rule string) bool {
		return (rule == g.Rule || strings.HasPrefix(rule, g.Rule+".")) && (concerns(g, c.subject) || c.place != "" && concerns(g, c.place))
	})
}

// concerns reports whether a gap takes in the subject of a check. A gap may be
// about several subjects, or about all.
func concerns(g *backend.Gap, subject string) bool {
	subjects := g.Subjects
	if subjects == nil {
		subjects = strings.Split(g.Subject, ", ")
	}
	return slices.ContainsFunc(subjects, func(s string) bool {
		return s == "" || s == subject || strings.HasPrefix(s, "/") && pathx.Within(s, subject)
	})
}
