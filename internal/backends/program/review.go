package program

import (
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/plan"
)

// Review adds a gap for each root of a plan's review, for a backend that cannot show any of them
// copy-on-write.
func (l *GapList) Review(p *plan.Plan, reason string) {
	for _, root := range p.ReviewRoots() {
		l.Add(backend.Gap{Rule: "review", Reason: reason + "; what the command writes is not kept aside",
			Fix: "use the backend native (cloche doctor says what it lacks), or let the command work in a copy", Origin: p.Review.Origin}, root)
	}
}
