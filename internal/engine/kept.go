package engine

import (
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// StaysClosed lists the paths below a host path that a plan keeps hidden or read-only.
func StaysClosed(p *plan.Plan, hostPath string, need policy.Access) (kept []grant.Kept) {
	inside, ok := p.InsidePath(hostPath)
	if !ok {
		inside = hostPath
	}
	paths, patterns := judge.ClosedBelow(p, inside, need)
	for _, e := range paths {
		kept = append(kept, grant.Kept{Path: pathx.Rebase(inside, hostPath, e.Path), Access: e.Access, Rule: e.Origin.String()})
	}
	for _, g := range patterns {
		kept = append(kept, grant.Kept{Path: g.Pattern, Pattern: true, Access: g.Access, Rule: g.Origin.String()})
	}
	return kept
}

// kept returns a notice for each grant in a plan that does not open everything in its folder.
func kept(p *plan.Plan) (notices []plan.Notice) {
	for i := range p.Paths {
		e := &p.Paths[i]
		if !e.Origin.Layer.Granted() || e.Kind != hostfs.Dir || e.Content != plan.Host {
			continue
		}
		if text := grant.KeptText(StaysClosed(p, e.Source, e.Access)); text != "" {
			notices = append(notices, plan.Notice{Kind: plan.NoticeInfo, Text: "the grant of " + e.Source + " does not open " + text, Origin: e.Origin})
		}
	}
	return notices
}
